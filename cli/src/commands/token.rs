//! Tokens for the server's clients: made here, stored by the client, known to the server by their digests.

use crate::failure::{Failure, Outcome};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{Args, ValueEnum};
use std::fmt::Write as _;

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// Make a token for clients of the server
///
/// Prints an entry for the file of tokens (`siltstone serve --tokens FILE`) and, on standard error, the token
/// itself, which is stored nowhere. Clients send it as `authorization: Bearer TOKEN`.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone token shop --right read,write --table 'projects/p/instances/i/tables/orders*' >> tokens.toml
         siltstone token prometheus --right monitor --expires 2027-12-31 >> tokens.toml")]
pub(crate) struct Token {
    /// Whose it is, for people
    name: String,
    /// Rights of the token
    #[arg(long = "right", value_delimiter = ',', required = true)]
    rights: Vec<Right>,
    /// Table it may be used on: its whole name, or the beginning of names and a `*`
    #[arg(long = "table")]
    tables: Vec<String>,
    /// When it ends: a date, which means its first moment in UTC, or a time such as 2027-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = expiry)]
    expires: Option<String>,
}

fn expiry(text: &str) -> Result<String, String> {
    match siltstone_server::token_expiry_us(text) {
        Some(_) => Ok(text.to_string()),
        None => Err("neither a date nor a time such as 2027-01-31T12:00:00Z".into()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Right {
    /// Read rows and changes of rows
    Read,
    /// Write rows
    Write,
    /// Create, change, back up and delete tables
    Admin,
    /// See the page and the metrics
    Monitor,
}

impl Token {
    pub(crate) fn run(self) -> Outcome {
        if self.tables.is_empty() && self.rights.iter().any(|right| *right != Right::Monitor) {
            return Err(Failure::Usage("rights to tables need at least one --table".into()));
        }
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(|e| Failure::Failed(format!("random bytes: {e}")))?;
        // Known for what it is wherever it is found, and never taken for an option.
        let token = format!("st_{}", URL_SAFE_NO_PAD.encode(bytes));
        print!("{}", self.entry(&token));
        eprintln!("token: {token}");
        Ok(())
    }

    fn entry(&self, token: &str) -> String {
        let list = |all: &mut dyn Iterator<Item = String>| {
            all.map(|text| toml::Value::from(text).to_string()).collect::<Vec<_>>().join(", ")
        };
        let mut names = self.rights.iter().filter_map(ValueEnum::to_possible_value);
        let rights = list(&mut names.by_ref().map(|right| right.get_name().to_string()));
        let mut entry = format!(
            "[[token]]\nname = {}\nsha256 = \"{}\"\nrights = [{rights}]\n",
            toml::Value::from(self.name.as_str()),
            siltstone_server::token_digest(token),
        );
        if !self.tables.is_empty() {
            let _ = writeln!(entry, "tables = [{}]", list(&mut self.tables.iter().cloned()));
        }
        if let Some(expires) = &self.expires {
            let _ = writeln!(entry, "expires = {}", toml::Value::from(expires.as_str()));
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_what_the_server_reads() {
        let token = Token {
            name: "a \"shop\"".into(),
            rights: vec![Right::Read, Right::Monitor],
            tables: vec!["projects/p/*".into()],
            expires: Some("2027-01-31".into()),
        };
        let read: toml::Table = token.entry("secret").parse().unwrap();
        let entry = &read["token"][0];
        assert_eq!(entry["name"].as_str(), Some("a \"shop\""));
        assert_eq!(entry["sha256"].as_str(), Some(&*siltstone_server::token_digest("secret")));
        assert_eq!(entry["rights"].as_array().unwrap()[1].as_str(), Some("monitor"));
        assert_eq!(entry["tables"].as_array().unwrap()[0].as_str(), Some("projects/p/*"));
        assert_eq!(entry["expires"].as_str(), Some("2027-01-31"));
        assert!(expiry("2027-01-31T12:00:00+01:00").is_ok());
        assert_eq!(expiry("tomorrow").unwrap_err(), "neither a date nor a time such as 2027-01-31T12:00:00Z");
    }
}
