//! Authorization: bearer tokens with rights on tables.
//!
//! Without a file of tokens whoever can connect may do everything. With one, every call needs a token
//! (`authorization: Bearer TOKEN`) and a right that the file gives it; what it does not give is denied. The
//! file has digests of tokens, not the tokens, and is read again when it changes. A token may have a time at
//! which it expires.

use crate::names;
use crate::net::files::Watched;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, de::Error};
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use tonic::Status;

/// A right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Right {
    /// To read rows, and changes of rows.
    Read,
    /// To write rows.
    Write,
    /// To create, change, back up and delete tables.
    Admin,
    /// To see the page and the metrics, which tell of all tables.
    Monitor,
}

/// The table or tables that a right is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scope<'a> {
    /// A table.
    Table(&'a str),
    /// All tables of an instance, also those that it will have.
    Instance(&'a str),
}

impl Right {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
            Self::Monitor => "monitor",
        }
    }
}

/// An entry of the file of tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grant {
    /// Whose token it is; for people.
    name: String,
    /// SHA-256 of the token, in hexadecimal.
    sha256: String,
    rights: Vec<Right>,
    /// Names of tables and of authorized views; one that ends in `*` means all that begin with what stands
    /// before it. Rights to a table are rights to its views, not the other way round.
    #[serde(default)]
    tables: Vec<String>,
    /// When it ends, in microseconds since 1970; `None` for never.
    #[serde(default, rename = "expires", deserialize_with = "expiry")]
    expires_us: Option<u64>,
}

/// When a token ends whose entry has this `expires`, in microseconds since 1970: a time by RFC 3339, or a
/// date, which means its first moment. Without an offset it is in UTC. `None` for what is neither.
#[must_use]
pub fn token_expiry_us(text: &str) -> Option<u64> {
    let time = text.parse::<prost_types::Timestamp>().ok()?;
    crate::time::micros(time.seconds, time.nanos)
}

/// A time or a date, in quotes or not.
fn expiry<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let value = toml::Value::deserialize(from)?;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
    let us = token_expiry_us(&text);
    let wrong = || {
        D::Error::custom(format!("expires: {text} is neither a date nor a time such as 2027-01-31T12:00:00Z"))
    };
    us.map(Some).ok_or_else(wrong)
}

impl Grant {
    fn is_over(&self) -> bool {
        self.expires_us.is_some_and(|at| at <= crate::time::now_us())
    }

    /// Whether it means that table, or that view.
    fn is_of(&self, name: &str) -> bool {
        let means = |name: &str| self.tables.iter().any(|pattern| names::fits(pattern, name));
        means(name) || names::table_of_view(name).is_some_and(means)
    }

    /// Whether it means that table, or a view of it.
    fn is_of_part(&self, table: &str) -> bool {
        let views = format!("{table}{}", names::VIEWS);
        self.is_of(table) || self.tables.iter().any(|pattern| meets(pattern, &views))
    }

    /// Whether it means all of that.
    fn covers(&self, scope: Scope<'_>) -> bool {
        match scope {
            Scope::Table(table) => self.is_of(table),
            Scope::Instance(instance) => {
                let tables = format!("{instance}/tables/");
                let mut begins = self.tables.iter().filter_map(|pattern| pattern.strip_suffix('*'));
                begins.any(|begin| tables.starts_with(begin))
            }
        }
    }

    /// Whether it means a table of that instance.
    fn is_within(&self, instance: &str) -> bool {
        let tables = format!("{instance}/tables/");
        let is_of_views = |pattern: &str| pattern.contains(names::VIEWS.trim_end_matches('/'));
        self.tables.iter().any(|pattern| meets(pattern, &tables) && !is_of_views(pattern))
    }
}

/// Whether a pattern means something whose name begins so.
fn meets(pattern: &str, begin: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => start.starts_with(begin) || begin.starts_with(start),
        None => pattern.starts_with(begin),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Grant>,
}

pub(crate) type Digests = HashMap<[u8; 32], Arc<[Grant]>>;

pub(crate) fn parse(text: &str) -> Result<Digests, String> {
    let file: File = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_string())?;
    let mut all: HashMap<[u8; 32], Vec<Grant>> = HashMap::new();
    for grant in file.token {
        let digest = digest_of(&grant.sha256)
            .ok_or_else(|| format!("sha256 of token \"{}\" must be 64 hexadecimal digits", grant.name))?;
        if grant.tables.is_empty() && grant.rights.iter().any(|right| *right != Right::Monitor) {
            return Err(format!("token \"{}\" has rights but no tables", grant.name));
        }
        all.entry(digest).or_default().push(grant);
    }
    Ok(all.into_iter().map(|(digest, grants)| (digest, grants.into())).collect())
}

fn digest_of(hex: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    for (byte, at) in digest.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
    }
    Some(digest)
}

/// The digest of a token as the file has it.
///
/// ```
/// assert!(siltstone_server::token_digest("secret").starts_with("2bb80d537b1da3e3"));
/// ```
pub fn token_digest(token: &str) -> String {
    names::hex(&Sha256::digest(token.as_bytes()))
}

/// The tokens that are known.
pub(crate) struct Tokens(Watched<Digests>);

impl Tokens {
    /// # Errors
    /// A file that cannot be read, or what is wrong in it.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let name = file.display().to_string();
        let make = move |contents: &[Vec<u8>]| {
            let text = contents.iter().map(|content| String::from_utf8_lossy(content)).collect::<String>();
            parse(&text).map_err(|e| format!("{name}: {e}"))
        };
        Watched::read(vec![file.to_path_buf()], Box::new(make)).map(Self)
    }

    /// Reads the file again if it has changed; see [`Watched::look`].
    ///
    /// # Errors
    /// What is wrong with the new one. The old tokens go on.
    pub(crate) fn look(&self) -> Result<bool, String> {
        self.0.look()
    }

    /// Whether the file as it is cannot be used.
    pub(crate) fn is_stale(&self) -> bool {
        self.0.is_stale()
    }

    /// The names of tokens that have this right there, and are not over.
    pub(crate) fn holders(&self, right: Right, scope: Scope<'_>) -> BTreeSet<String> {
        let digests = self.0.now();
        let grants = digests.values().flat_map(|grants| grants.iter());
        let held =
            grants.filter(|grant| !grant.is_over() && grant.rights.contains(&right) && grant.covers(scope));
        held.map(|grant| grant.name.clone()).collect()
    }

    /// Whose token an `authorization` header has. A password of HTTP's basic way is taken for a token, as
    /// browsers ask for that.
    pub(crate) fn who(&self, authorization: Option<&[u8]>) -> Result<Who, Status> {
        let text = authorization.and_then(|header| std::str::from_utf8(header).ok());
        let Some((scheme, rest)) = text.and_then(|text| text.split_once(' ')) else {
            return Err(Status::unauthenticated("a token is needed: authorization: Bearer TOKEN"));
        };
        let token = match scheme.to_ascii_lowercase().as_str() {
            "bearer" => Some(rest.trim().to_string()),
            "basic" => STANDARD
                .decode(rest.trim())
                .ok()
                .and_then(|pair| String::from_utf8(pair).ok())
                .and_then(|pair| pair.split_once(':').map(|(_, password)| password.to_string())),
            _ => None,
        };
        let digest: Option<[u8; 32]> = token.map(|token| Sha256::digest(token.as_bytes()).into());
        let grants = digest.and_then(|digest| self.0.now().get(&digest).cloned());
        match grants {
            Some(grants) if grants.iter().all(Grant::is_over) => {
                Err(Status::unauthenticated("the token has expired"))
            }
            Some(grants) => Ok(Who(Some(grants))),
            None => Err(Status::unauthenticated("the token is not known")),
        }
    }
}

/// The caller of a call, and its rights.
#[derive(Clone)]
pub(crate) struct Who(Option<Arc<[Grant]>>);

impl Who {
    /// Any caller, if there are no tokens.
    pub(crate) const ANYONE: Self = Self(None);

    /// A caller with that right to a table, or to all whose names begin so.
    #[cfg(test)]
    pub(crate) fn with(right: Right, tables: &str) -> Self {
        let (name, rights, tables) = ("test".to_string(), vec![right], vec![tables.to_string()]);
        Self(Some(vec![Grant { name, sha256: String::new(), rights, tables, expires_us: None }].into()))
    }

    /// Whether something holds of a grant that is not over.
    fn any(&self, holds: impl Fn(&Grant) -> bool) -> bool {
        self.0.as_ref().is_none_or(|all| all.iter().any(|grant| holds(grant) && !grant.is_over()))
    }

    /// Whose token it is; `None` where there are no tokens, and nothing is forbidden.
    pub(crate) fn name(&self) -> Option<&str> {
        self.0.as_ref().map(|all| all.first().map_or("", |grant| grant.name.as_str()))
    }

    fn has(&self, right: Right, is_of: impl Fn(&Grant) -> bool) -> bool {
        self.any(|grant| grant.rights.contains(&right) && is_of(grant))
    }

    /// Whether the caller has any right on a table, and so may learn that it exists.
    pub(crate) fn sees(&self, table: &str) -> bool {
        self.any(|grant| grant.is_of(table))
    }

    /// # Errors `PERMISSION_DENIED` if the caller may not even learn that the table exists.
    pub(crate) fn check_sees(&self, table: &str) -> Result<(), Status> {
        match self.sees(table) {
            true => Ok(()),
            false => Err(Status::permission_denied(format!("the token has no right to {table}"))),
        }
    }

    pub(crate) fn may_monitor(&self) -> bool {
        self.has(Right::Monitor, |_| true)
    }

    /// # Errors
    /// `PERMISSION_DENIED`.
    pub(crate) fn may(&self, right: Right, table: &str) -> Result<(), Status> {
        match self.has(right, |grant| grant.is_of(table)) {
            true => Ok(()),
            false => {
                Err(Status::permission_denied(format!("the token has no right to {} {table}", right.name())))
            }
        }
    }

    /// Whether there is this right there.
    pub(crate) fn has_on(&self, right: Right, scope: Scope<'_>) -> bool {
        self.has(right, |grant| grant.covers(scope))
    }

    /// Whether there is any right there: to a table, or to one of an instance.
    pub(crate) fn sees_of(&self, scope: Scope<'_>) -> bool {
        match scope {
            Scope::Table(table) => self.sees(table),
            Scope::Instance(instance) => self.any(|grant| grant.is_within(instance)),
        }
    }

    /// Whether all tables of an instance may be administered, and so the instance.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`.
    pub(crate) fn governs(&self, instance: &str) -> Result<(), Status> {
        match self.has_on(Right::Admin, Scope::Instance(instance)) {
            true => Ok(()),
            false => {
                let message = format!("the token has no right to admin all tables of {instance}");
                Err(Status::permission_denied(message))
            }
        }
    }

    /// Whether there is this right to a table, or to a view of it.
    pub(crate) fn may_part(&self, right: Right, table: &str) -> bool {
        self.has(right, |grant| grant.is_of_part(table))
    }

    /// Whether there is this right to a table of an instance, so that names of the instance may be taken,
    /// such as those of backups.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`.
    pub(crate) fn may_within(&self, right: Right, instance: &str) -> Result<(), Status> {
        match self.has(right, |grant| grant.is_within(instance)) {
            true => Ok(()),
            false => {
                let right = right.name();
                Err(Status::permission_denied(format!("the token has no right to {right} within {instance}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Tokens {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Tokens::read(file.path()).unwrap()
    }

    #[test]
    fn a_token_ends_at_its_time() {
        let digest = token_digest("x");
        let entry = |right: &str, expires: &str| {
            format!(
                "[[token]]\nname = 'x'\nsha256 = '{digest}'\nrights = ['{right}']\ntables = ['t']\nexpires = {expires}\n"
            )
        };
        let who = |text: &str| tokens(text).who(Some(b"Bearer x"));
        for over in ["2020-01-31", "'2020-01-31'", "2020-01-31T12:00:00+01:00", "'2020-01-31T12:00:00Z'"] {
            let refused = who(&entry("read", over)).err().unwrap();
            assert!(refused.code() == tonic::Code::Unauthenticated && refused.message().contains("expired"));
        }
        // One entry of the token is over, the other not.
        let who = who(&(entry("read", "2200-01-31") + &entry("write", "2020-01-31"))).unwrap();
        assert!(who.may(Right::Read, "t").is_ok() && who.sees("t") && who.may(Right::Write, "t").is_err());
        let text = entry("read", &format!("'{}'", prost_types::Timestamp { seconds: 5, nanos: 0 }));
        assert_eq!(parse(&text).unwrap().values().next().unwrap()[0].expires_us, Some(5_000_000));
        for wrong in ["'soon'", "5", "2020-13-31", "12:00:00"] {
            assert!(parse(&entry("read", wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_token_has_the_rights_of_its_entries_and_no_others() {
        let (shop, eye) = (token_digest("shop"), token_digest("eye"));
        let tokens = tokens(&format!(
            "[[token]]\nname = 'shop'\nsha256 = '{shop}'\nrights = ['read', 'write']\ntables = ['i/orders*', 'i/x']\n\
             [[token]]\nname = 'shop'\nsha256 = '{shop}'\nrights = ['read']\ntables = ['i/goods']\n\
             [[token]]\nname = 'eye'\nsha256 = '{eye}'\nrights = ['monitor']\n"
        ));
        let shop = tokens.who(Some(b"Bearer shop")).unwrap();
        assert!(shop.may(Right::Read, "i/orders").is_ok() && shop.may(Right::Write, "i/orders-1").is_ok());
        assert!(shop.may(Right::Read, "i/goods").is_ok() && shop.may(Right::Write, "i/goods").is_err());
        assert!(shop.may(Right::Read, "i/x").is_ok() && shop.may(Right::Read, "i/xy").is_err());
        assert!(shop.may(Right::Admin, "i/orders").is_err() && !shop.sees("i/other") && !shop.may_monitor());
        let eye = tokens.who(Some(format!("Basic {}", STANDARD.encode("me:eye")).as_bytes())).unwrap();
        assert!(eye.may_monitor() && eye.may(Right::Read, "i/x").is_err() && !eye.sees("i/x"));
        for wrong in [
            None,
            Some(&b"Bearer"[..]),
            Some(b"Bearer "),
            Some(b"Bearer shop2"),
            Some(b"shop"),
            Some(b"\xff x"),
            Some(b"Basic eye"),
        ] {
            let refused = tokens.who(wrong).err().unwrap();
            assert_eq!(refused.code(), tonic::Code::Unauthenticated);
        }
        assert!(Who::ANYONE.may(Right::Admin, "t").is_ok() && Who::ANYONE.may_monitor());
    }

    #[test]
    fn a_right_within_an_instance_is_one_to_a_table_of_it() {
        let digest = token_digest("x");
        let of = |pattern: &str| {
            let tokens = tokens(&format!(
                "[[token]]\nname = 'x'\nsha256 = '{digest}'\nrights = ['admin']\ntables = ['{pattern}']"
            ));
            tokens.who(Some(b"Bearer x")).unwrap()
        };
        let instance = "projects/p/instances/i";
        for right in
            ["*", "projects/p/*", "projects/p/instances/i/tables/t", "projects/p/instances/i/tables/t*"]
        {
            assert!(of(right).may_within(Right::Admin, instance).is_ok(), "{right}");
            assert!(of(right).may_within(Right::Read, instance).is_err(), "{right}");
        }
        let of_views = [
            "projects/p/instances/i/tables/t/authorizedViews/v",
            "projects/p/instances/i/tables/t/authorizedViews*",
        ];
        let others = ["projects/q/*", "projects/p/instances/i2/tables/t", "projects/p/instances/i", "", "i*"];
        for wrong in others.into_iter().chain(of_views) {
            assert!(of(wrong).may_within(Right::Admin, instance).is_err(), "{wrong}");
        }
        assert!(Who::ANYONE.may_within(Right::Admin, instance).is_ok());
    }

    #[test]
    fn an_instance_is_governed_by_who_administers_all_tables_that_it_may_have() {
        let digest = token_digest("x");
        let of = |right: &str, pattern: &str| {
            tokens(&format!(
                "[[token]]\nname = 'x'\nsha256 = '{digest}'\nrights = ['{right}']\ntables = ['{pattern}']"
            ))
        };
        let governs = |right: &str, pattern: &str| {
            of(right, pattern).who(Some(b"Bearer x")).unwrap().governs("projects/p/instances/i").is_ok()
        };
        for right in ["*", "projects/p/*", "projects/p/instances/i*", "projects/p/instances/i/tables/*"] {
            assert!(governs("admin", right) && !governs("write", right), "{right}");
        }
        for wrong in
            ["projects/p/instances/i/tables/t*", "projects/p/instances/i/tables/t", "projects/q/*", ""]
        {
            assert!(!governs("admin", wrong), "{wrong}");
        }
        assert!(Who::ANYONE.governs("projects/p/instances/i").is_ok());
        let holders = |pattern: &str, scope| of("read", pattern).holders(Right::Read, scope).len();
        let (instance, table) = (Scope::Instance("a/b/c/d"), Scope::Table("a/b/c/d/tables/t"));
        assert_eq!((holders("a/*", instance), holders("a/*", table)), (1, 1));
        assert_eq!((holders("a/b/c/d/tables/t", instance), holders("a/b/c/d/tables/t", table)), (0, 1));
        assert!(of("read", "a/*").holders(Right::Admin, table).is_empty());
    }

    #[test]
    fn rights_to_a_table_are_rights_to_its_views_and_those_to_a_view_are_to_nothing_else() {
        let digest = token_digest("x");
        let of = |pattern: &str| {
            let tokens = tokens(&format!(
                "[[token]]\nname = 'x'\nsha256 = '{digest}'\nrights = ['read']\ntables = ['{pattern}']"
            ));
            tokens.who(Some(b"Bearer x")).unwrap()
        };
        let table = "projects/p/instances/i/tables/t";
        let view = format!("{table}/authorizedViews/v");
        for whole in [table, "projects/p/*"] {
            let who = of(whole);
            assert!(
                who.may(Right::Read, &view).is_ok() && who.may(Right::Read, table).is_ok() && who.sees(&view)
            );
        }
        for part in [&view[..], &format!("{table}/authorizedViews/*"), &format!("{table}/authorizedViews/v*")]
        {
            let who = of(part);
            assert!(who.may(Right::Read, &view).is_ok() && who.may(Right::Write, &view).is_err(), "{part}");
            assert!(who.may(Right::Read, table).is_err() && !who.sees(table), "{part}");
            assert!(who.may_part(Right::Read, table) && !who.may_part(Right::Write, table), "{part}");
            let other = format!("{table}2/authorizedViews/v");
            assert!(
                who.may(Right::Read, &other).is_err() && !who.may_part(Right::Read, &format!("{table}2"))
            );
        }
        assert!(of(&view).may(Right::Read, &format!("{view}2")).is_err());
    }

    #[test]
    fn what_is_wrong_in_the_file_is_said() {
        let digest = token_digest("x");
        for (text, expected) in [
            ("[[token]]\nname = 'a'\nsha256 = 'zz'\nrights = []".to_string(), "64"),
            (format!("[[token]]\nname = 'a'\nsha256 = '{digest}'\nrights = ['read']"), "no tables"),
            (format!("[[token]]\nname = 'a'\nsha256 = '{digest}'\nrights = ['fly']"), "line 4"),
            ("[[tokens]]\nname = 'a'".to_string(), "line 1"),
        ] {
            let wrong = parse(&text).unwrap_err();
            assert!(wrong.contains(expected), "{text}: {wrong}");
        }
    }
}
