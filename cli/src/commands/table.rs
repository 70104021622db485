//! Tables of a server: listing them, showing and changing their settings while it runs.

use crate::failure::{Failure, Outcome};
use crate::remote::{Access, Remote};
use crate::text::count;
use admin::bigtable_table_admin_client::BigtableTableAdminClient;
use clap::{Args, Subcommand};
use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
use serde_json::Value;
use siltstone::size_text;
use siltstone_server::{AlterSettings, Json, TableName};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// List, create, show and alter the tables of a running server
#[derive(Args)]
#[command(after_help = "\
Example: siltstone table list
         siltstone table show packages
         siltstone table alter packages --family files --set compression=zstd:3")]
pub(crate) struct Table {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    List(List),
    Create(Create),
    Show(Show),
    Alter(Alter),
}

impl Table {
    pub(crate) fn run(self) -> Outcome {
        match self.action {
            Action::List(action) => action.run(),
            Action::Create(action) => action.run(),
            Action::Show(action) => action.run(),
            Action::Alter(action) => action.run(),
        }
    }
}

/// Which server.
#[derive(Args)]
pub(crate) struct At {
    /// Address of the server; https://HOST:PORT for TLS
    #[arg(long, env = "SILTSTONE_SERVER", default_value = "127.0.0.1:8086")]
    server: String,
    #[command(flatten)]
    access: Access,
}

impl At {
    pub(crate) fn connect(&self) -> Outcome<Remote> {
        self.access.connect(&self.server)
    }
}

fn parsed(json: &Json) -> Outcome<Value> {
    serde_json::from_str(&json.json).map_err(|e| Failure::Failed(format!("what the server answered: {e}")))
}

/// List the tables of an instance
#[derive(Args)]
#[command(after_help = "\
Example: siltstone table list
         siltstone table list --instance projects/p/instances/i --json")]
struct List {
    #[command(flatten)]
    at: At,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl List {
    fn run(self) -> Outcome {
        let remote = self.at.connect()?;
        let mut client = BigtableTableAdminClient::new(remote.service());
        let (mut names, mut page_token) = (Vec::new(), String::new());
        loop {
            let parent = remote.instance().to_string();
            let request = admin::ListTablesRequest { parent, page_token, ..Default::default() };
            let page = remote.wait(client.list_tables(request))?.into_inner();
            names.extend(page.tables.into_iter().map(|table| table.name));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(&names)?),
            false => names.iter().for_each(|name| println!("{name}")),
        }
        Ok(())
    }
}

/// Create a table
///
/// Its families keep all versions of cells; rules are set by the clients' tools, such as `cbt setgcpolicy`.
#[derive(Args)]
#[command(after_help = "Examples:
  siltstone table create clicks --family day --family user
  siltstone table create clicks --family day --split g --split n --split t
  siltstone table create clicks --family day --splits-file rows.txt")]
struct Create {
    /// Name of the table, in short or in full
    table: String,
    /// A column family
    #[arg(long = "family")]
    families: Vec<String>,
    /// A row at which the table is cut into regions from the beginning, and stays cut; `\xHH` is a byte
    #[arg(long = "split", value_name = "ROW")]
    splits: Vec<String>,
    /// A file of such rows, one a line
    #[arg(long, value_name = "FILE")]
    splits_file: Option<PathBuf>,
    #[command(flatten)]
    at: At,
}

impl Create {
    fn run(self) -> Outcome {
        let remote = self.at.connect()?;
        let name = remote.table(&self.table);
        let Some((parent, id)) = name.split_once("/tables/") else {
            return Err(Failure::Usage(format!("`{name}` is not the name of a table")));
        };
        let families = self.families.iter().map(|family| (family.clone(), admin::ColumnFamily::default()));
        let table = admin::Table { column_families: families.collect(), ..Default::default() };
        let mut splits = self.splits;
        if let Some(file) = &self.splits_file {
            let text = std::fs::read_to_string(file)
                .map_err(|e| Failure::Usage(format!("{}: {e}", file.display())))?;
            splits.extend(text.lines().filter(|line| !line.is_empty()).map(str::to_string));
        }
        let split = |row: String| {
            let key = crate::escape::unescape(row.as_bytes())
                .map_err(|e| Failure::Usage(format!("--split {row}: {e}")))?;
            Ok(admin::create_table_request::Split { key: key.into() })
        };
        let initial_splits = splits.into_iter().map(split).collect::<Outcome<Vec<_>>>()?;
        let (parent, table_id) = (parent.to_string(), id.to_string());
        let request = admin::CreateTableRequest { parent, table_id, table: Some(table), initial_splits };
        remote.wait(BigtableTableAdminClient::new(remote.service()).create_table(request))?;
        Ok(())
    }
}

/// Show a table: the contents and settings of its families
#[derive(Args)]
#[command(after_help = "Example: siltstone table show packages --json")]
struct Show {
    /// Name of the table, in short or in full
    table: String,
    #[command(flatten)]
    at: At,
    /// Report as JSON, with all options of all families
    #[arg(long)]
    json: bool,
}

impl Show {
    fn run(self) -> Outcome {
        let remote = self.at.connect()?;
        let name = remote.table(&self.table);
        let json = remote.wait(remote.operator().table(TableName { name }))?.into_inner();
        let table = parsed(&json)?;
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(&table)?),
            false => print(&table),
        }
        Ok(())
    }
}

fn print(table: &Value) {
    let regions = count(table["regions"].as_u64().unwrap_or(0), "region");
    println!("{}: {regions}", table["name"].as_str().unwrap_or_default());
    for family in table["families"].as_array().into_iter().flatten() {
        let bytes = |name: &str| size_text(family[name].as_u64().unwrap_or(0));
        let name = family["name"].as_str().unwrap_or_default();
        println!("{name}: {} in SSTables, {} in memory", bytes("sstable_bytes"), bytes("memory_bytes"));
        println!("  rule: {}", family["gc"]);
        for option in ["strategy", "memtable_policy", "compression"] {
            println!("  {option}={}", family["options"][option].as_str().unwrap_or_default());
        }
        for (option, value) in family["set"].as_object().into_iter().flatten() {
            println!("  {option}={} (set for this family)", value.as_str().unwrap_or_default());
        }
    }
}

/// Change the settings of a table's stores, while the server runs
///
/// Data is not rewritten: new SSTables have the new layout, and compactions follow the new strategy. Settings
/// made here override the server's configuration, and last.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone table alter packages --set strategy=tiered
         siltstone table alter packages --family files --set compression=zstd:3 --set block_bytes=16KiB
         siltstone table alter packages --set strategy=")]
struct Alter {
    /// Name of the table, in short or in full
    table: String,
    /// One column family [default: all]
    #[arg(long)]
    family: Option<String>,
    /// An option as `siltstone family show` prints it; an empty value takes back what was set
    #[arg(long = "set", value_name = "OPTION=VALUE", required = true)]
    set: Vec<String>,
    #[command(flatten)]
    at: At,
}

impl Alter {
    fn run(self) -> Outcome {
        let pair = |text: &String| {
            let pair = text.split_once('=').map(|(name, value)| (name.trim().into(), value.trim().into()));
            pair.ok_or_else(|| Failure::Usage(format!("`{text}` sets nothing; expected --set OPTION=VALUE")))
        };
        let settings: BTreeMap<String, String> = self.set.iter().map(pair).collect::<Outcome<_>>()?;
        let remote = self.at.connect()?;
        let name = remote.table(&self.table);
        let family = self.family.unwrap_or_default();
        let request = AlterSettings { name, family, settings };
        let json = remote.wait(remote.operator().alter_settings(request))?.into_inner();
        print(&parsed(&json)?);
        Ok(())
    }
}
