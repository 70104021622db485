//! Who may do what: bearer tokens with rights on tables.
//!
//! Without a file of tokens whoever can connect may do everything. With one, every call needs a token (`authorization: Bearer TOKEN`)
//! and a right that the file gives it; what it does not give is denied. The file has digests of tokens, not the tokens, and is read
//! again when it changes.

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tonic::Status;

/// What may be done.
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

impl Right {
    fn name(self) -> &'static str {
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
    /// Names of tables; one that ends in `*` means all that begin with what stands before it.
    #[serde(default)]
    tables: Vec<String>,
}

impl Grant {
    fn is_of(&self, table: &str) -> bool {
        self.tables.iter().any(|pattern| crate::names::fits(pattern, table))
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
    use std::fmt::Write as _;
    Sha256::digest(token.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The tokens that are known.
pub(crate) struct Tokens {
    file: PathBuf,
    now: ArcSwap<Digests>,
    seen: Mutex<Option<SystemTime>>,
}

impl Tokens {
    /// # Errors
    /// A file that cannot be read, or what is wrong in it.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let seen = Mutex::new(crate::config::changed_at(file));
        Ok(Self { file: file.to_path_buf(), now: ArcSwap::from_pointee(Self::of(file)?), seen })
    }

    fn of(file: &Path) -> Result<Digests, String> {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        parse(&text).map_err(|e| format!("{}: {e}", file.display()))
    }

    /// Reads the file again if it has changed.
    ///
    /// # Errors
    /// What is wrong with the new one. The old tokens go on.
    pub(crate) fn look(&self) -> Result<bool, String> {
        let now = crate::config::changed_at(&self.file);
        if std::mem::replace(&mut *self.seen.lock(), now) == now {
            return Ok(false);
        }
        self.now.store(Arc::new(Self::of(&self.file)?));
        Ok(true)
    }

    /// Whose token an `authorization` header has. A password of HTTP's basic way is taken for a token, as browsers ask for that.
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
        let grants = digest.and_then(|digest| self.now.load().get(&digest).cloned());
        grants
            .map(|grants| Who(Some(grants)))
            .ok_or_else(|| Status::unauthenticated("the token is not known"))
    }
}

/// Who makes a call, and what they may do.
#[derive(Clone)]
pub(crate) struct Who(Option<Arc<[Grant]>>);

impl Who {
    /// Whoever can connect, where there are no tokens.
    pub(crate) const ANYONE: Self = Self(None);

    fn has(&self, right: Right, is_of: impl Fn(&Grant) -> bool) -> bool {
        self.0
            .as_ref()
            .is_none_or(|all| all.iter().any(|grant| grant.rights.contains(&right) && is_of(grant)))
    }

    /// Whether there is any right on a table, so that it may be known that it is there.
    pub(crate) fn sees(&self, table: &str) -> bool {
        self.0.as_ref().is_none_or(|all| all.iter().any(|grant| grant.is_of(table)))
    }

    /// # Errors
    /// `PERMISSION_DENIED` where it may not even be known that the table is there.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Tokens {
        let now = ArcSwap::from_pointee(parse(text).unwrap());
        Tokens { file: PathBuf::new(), now, seen: Mutex::new(None) }
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
