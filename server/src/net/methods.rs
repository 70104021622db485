//! The methods that are served: the rights that each needs, and the limits of a call.
//!
//! The rights that a call needs are looked up here, by its path and the table that it names, before the
//! remaining request is read. A method that `api.txt` does not list is not served.
//!
//! A call of data may name an authorized view instead, at the end of its request. Its headers name it, too,
//! or its table ([`Said`]): by these a long request is let in. It is judged again by the view that it names.

use crate::names;
use crate::net::auth::{Right, Who};
use crate::net::counts::Kind;
use crate::net::fields::{self, Message};
use crate::net::wire::{self, Found, Shape};
use http::HeaderMap;
use tonic::Status;

/// Bytes of a request that writes, at most: a row of 256 MiB with what belongs to it.
pub(crate) const WRITE_MAX: usize = 257 << 20;
/// Bytes of other requests, at most.
const REQUEST_MAX: usize = 4 << 20;
/// Bytes of those that hold names and little else, at most.
const NAMES_MAX: usize = 64 << 10;
/// Bytes of a question for the health, at most.
const HEALTH_MAX: usize = 1 << 10;

/// The most characters of an unknown method's path in the error.
const NAME_SHOWN_MAX: usize = 200;

/// The place of a text in a request: the numbers of the fields that lead to it.
type Path = &'static [u64];

/// The callers that may call a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Any caller.
    Anybody,
    /// Callers with a known token. The answer depends on its rights, or the method checks them itself.
    Known,
    /// Callers with the right to monitor.
    Monitor,
    /// Callers with any right to the table whose name stands there.
    Sees(Path),
    /// Callers with these rights to the table whose name stands there.
    May(&'static [Right], Path),
    /// Callers with these rights to the table whose name stands in field 1, or to the view whose name stands
    /// in this field.
    Data(&'static [Right], u64),
    /// Callers with any right to the table to which the named resource belongs.
    SeesWithin(Path),
    /// Administrators of the table to which the named resource belongs.
    Within(Path),
    /// Administrators of the table whose instance stands in field 1, and its id in field 2.
    Makes,
    /// Administrators of all tables of the named instance, or of that in which the named resource lies.
    Governs(Path),
    /// Administrators of all tables of the instance whose project stands in field 1, and its id in field 2.
    MakesInstance,
}

/// A method.
pub(crate) struct Method {
    path: &'static str,
    rule: Rule,
    pub(crate) kind: Kind,
    /// Bytes of its request, at most.
    pub(crate) bytes_max: usize,
    pub(crate) shape: &'static Shape,
    /// The treatment of its request's fields.
    pub(crate) request: Option<&'static Message>,
}

const fn method(path: &'static str, rule: Rule, bytes_max: usize, shape: &'static Shape) -> Method {
    Method { path, rule, kind: Kind::Call, bytes_max, shape, request: fields::request_of(path) }
}

/// One whose request holds names.
const fn named(path: &'static str, rule: Rule) -> Method {
    method(path, rule, NAMES_MAX, &wire::PLAIN)
}

const READS: Rule = Rule::May(&[Right::Read], &[1]);
const ADMINISTERS: Rule = Rule::May(&[Right::Admin], &[1]);
const GOVERNS: Rule = Rule::Governs(&[1]);
/// The rule of one whose request names it in a message within.
const GOVERNS_WITHIN: Rule = Rule::Governs(&[1, 1]);
/// Rights to data; the views of calls stand in different fields.
const READ: &[Right] = &[Right::Read];
const WRITE: &[Right] = &[Right::Write];
const BOTH: &[Right] = &[Right::Read, Right::Write];

/// The listed methods, in the order of `api.txt`.
static METHODS: &[Method] = include!(concat!(env!("OUT_DIR"), "/methods.rs"));

/// The methods of the health service, which is not ours.
static HEALTH: &[Method] = &[
    method("/grpc.health.v1.Health/Check", Rule::Anybody, HEALTH_MAX, &wire::PLAIN).of_kind(Kind::Health),
    method("/grpc.health.v1.Health/Watch", Rule::Anybody, HEALTH_MAX, &wire::PLAIN).of_kind(Kind::Watch),
];

/// The method of that path.
pub(crate) fn of(path: &str) -> Option<&'static Method> {
    METHODS.iter().chain(HEALTH).find(|method| method.path == path)
}

/// The error of a call of a method that is not served, of any service: its name, and where the served ones
/// are listed.
pub(crate) fn not_served(path: &str) -> Status {
    let name: String = path.chars().take(NAME_SHOWN_MAX).collect();
    let name = name.trim_start_matches('/');
    Status::unimplemented(format!(
        "\"{name}\" is not served; docs/bigtable-api.md lists the methods that are"
    ))
}

/// What the headers of a call say that it is about.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    table: Option<String>,
    view: Option<String>,
}

impl Said {
    /// By `x-goog-request-params`, or, as Go's client says it, by `google-cloud-resource-prefix`.
    fn of(headers: &HeaderMap) -> Self {
        let mut said = Self::default();
        for header in headers.get_all("x-goog-request-params") {
            for (key, value) in form_urlencoded::parse(header.as_bytes()) {
                match &*key {
                    "table_name" if !value.is_empty() => said.table = Some(value.into_owned()),
                    "authorized_view_name" if !value.is_empty() => said.view = Some(value.into_owned()),
                    _ => {}
                }
            }
        }
        if said.view.is_none() {
            let resource = headers.get("google-cloud-resource-prefix").and_then(|name| name.to_str().ok());
            let is_view = |name: &&str| names::table_of_view(name).is_some();
            said.view = resource.filter(is_view).map(str::to_string);
        }
        said
    }
}

/// Whether a call may go on, as far as its request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    Yes,
    /// What it is about is not there yet.
    NotYet,
}

impl Method {
    /// The method, counted as one of that kind.
    const fn of_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Whether it is answered without a token.
    pub(crate) fn is_open(&self) -> bool {
        self.rule == Rule::Anybody
    }

    /// What the headers of a call of it say, where that counts.
    pub(crate) fn said(&self, headers: &HeaderMap) -> Said {
        match self.rule {
            Rule::Data(..) => Said::of(headers),
            _ => Said::default(),
        }
    }

    /// Whether that caller may send a request of it which is about what the headers say.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`.
    pub(crate) fn allows_said(&self, who: &Who, said: &Said) -> Result<Allowed, Status> {
        let Rule::Data(rights, _) = self.rule else { return Ok(Allowed::NotYet) };
        match said {
            Said { view: Some(view), .. } => {
                rights.iter().try_for_each(|right| who.may(*right, view)).map(|()| Allowed::Yes)
            }
            Said { table: Some(table), .. } if rights.iter().all(|right| who.may_part(*right, table)) => {
                Ok(Allowed::Yes)
            }
            _ => Ok(Allowed::NotYet),
        }
    }

    /// Whether a request, all of whose `len` bytes have arrived, names the view that the headers name.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` where it names another one, or none.
    pub(crate) fn check_said<B: AsRef<[u8]>>(
        &self,
        said: &Said,
        pieces: &[B],
        begin: usize,
        len: usize,
    ) -> Result<(), Status> {
        let (Rule::Data(_, field), Some(view)) = (self.rule, &said.view) else { return Ok(()) };
        match wire::text_of(pieces, begin, len, &[field])? {
            Found::Text(named) if named == *view => Ok(()),
            _ => Err(Status::invalid_argument(format!(
                "authorized_view_name is not {view}, which the headers of the call name"
            ))),
        }
    }

    /// Whether that caller may call it, with a request of which so many bytes of `len` have come, from
    /// `begin` on.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, and what is wrong with the request.
    pub(crate) fn allows<B: AsRef<[u8]>>(
        &self,
        who: &Who,
        pieces: &[B],
        begin: usize,
        len: usize,
    ) -> Result<Allowed, Status> {
        let text = |path: &[u64]| wire::text_of(pieces, begin, len, path);
        match self.rule {
            Rule::Anybody | Rule::Known => {}
            Rule::Monitor if who.may_monitor() => {}
            Rule::Monitor => return Err(Status::permission_denied("the token has no right to monitor")),
            Rule::Sees(path) => match text(path)? {
                Found::Text(table) => who.check_sees(&table)?,
                Found::NotYet => return Ok(Allowed::NotYet),
            },
            Rule::May(rights, path) => match text(path)? {
                Found::Text(table) => rights.iter().try_for_each(|right| who.may(*right, &table))?,
                Found::NotYet => return Ok(Allowed::NotYet),
            },
            Rule::Data(rights, field) => {
                let may = |name: &str| rights.iter().try_for_each(|right| who.may(*right, name));
                // One that names both is refused by who serves it.
                match (text(&[1])?, text(&[field])?) {
                    (Found::Text(table), _) if !table.is_empty() => may(&table)?,
                    (_, Found::Text(view)) if !view.is_empty() => may(&view)?,
                    (Found::Text(_), Found::Text(_)) => may("")?,
                    _ => return Ok(Allowed::NotYet),
                }
            }
            Rule::SeesWithin(path) => match text(path)? {
                Found::Text(name) => who.check_sees(names::table_of_part(&name))?,
                Found::NotYet => return Ok(Allowed::NotYet),
            },
            Rule::Within(path) => match text(path)? {
                Found::Text(name) => who.may(Right::Admin, names::table_of_part(&name))?,
                Found::NotYet => return Ok(Allowed::NotYet),
            },
            Rule::Makes => match (text(&[1])?, text(&[2])?) {
                (Found::Text(instance), Found::Text(id)) => {
                    // An invalid name is nobody's table.
                    let table = names::table_of(&instance, &id).unwrap_or_default();
                    who.may(Right::Admin, &table)?;
                }
                _ => return Ok(Allowed::NotYet),
            },
            Rule::Governs(path) => match text(path)? {
                Found::Text(name) => who.governs(names::instance_of(&name))?,
                Found::NotYet => return Ok(Allowed::NotYet),
            },
            Rule::MakesInstance => match (text(&[1])?, text(&[2])?) {
                (Found::Text(project), Found::Text(id)) => {
                    who.governs(&format!("{project}/instances/{id}"))?;
                }
                _ => return Ok(Allowed::NotYet),
            },
        }
        Ok(Allowed::Yes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_there_once_and_only_the_health_is_open() {
        for method in METHODS.iter().chain(HEALTH) {
            let is_health = method.path.starts_with("/grpc.health.v1.Health/");
            assert_eq!(method.is_open(), is_health, "{}", method.path);
            assert!(std::ptr::eq(of(method.path).unwrap(), method), "{} is there twice", method.path);
        }
        assert!(of("/google.bigtable.v2.Bigtable/Other").is_none());
    }

    #[test]
    fn a_method_that_is_not_served_is_told_by_its_name() {
        let told = not_served("/google.bigtable.v2.Bigtable/ExecuteQuery");
        assert_eq!(told.code(), tonic::Code::Unimplemented);
        let text = told.message();
        assert!(text.contains("\"google.bigtable.v2.Bigtable/ExecuteQuery\""), "{text}");
        assert!(text.contains("docs/bigtable-api.md"), "{text}");
        assert!(not_served(&"x".repeat(10_000)).message().len() < 300);
    }

    #[test]
    fn the_view_of_a_call_stands_in_the_field_that_its_message_has_for_it() {
        use crate::proto::data::{
            CheckAndMutateRowRequest, MutateRowRequest, MutateRowsRequest, ReadModifyWriteRowRequest,
            ReadRowsRequest, SampleRowKeysRequest,
        };
        use prost::Message;
        macro_rules! named {
            ($request:ident) => {
                $request { authorized_view_name: "view".into(), ..Default::default() }.encode_to_vec()
            };
        }
        let requests = [
            ("ReadRows", named!(ReadRowsRequest)),
            ("SampleRowKeys", named!(SampleRowKeysRequest)),
            ("MutateRow", named!(MutateRowRequest)),
            ("MutateRows", named!(MutateRowsRequest)),
            ("CheckAndMutateRow", named!(CheckAndMutateRowRequest)),
            ("ReadModifyWriteRow", named!(ReadModifyWriteRowRequest)),
        ];
        for (name, bytes) in &requests {
            let method = of(&format!("/google.bigtable.v2.Bigtable/{name}")).unwrap();
            let said = |view: &str| Said { view: Some(view.into()), table: None };
            let check = |said: &Said| method.check_said(said, &[bytes], 0, bytes.len());
            assert!(check(&said("view")).is_ok() && check(&Said::default()).is_ok(), "{name}");
            assert_eq!(check(&said("other")).unwrap_err().code(), tonic::Code::InvalidArgument, "{name}");
        }
        let of_data = METHODS.iter().filter(|method| matches!(method.rule, Rule::Data(..))).count();
        assert_eq!(of_data, requests.len());
    }

    #[test]
    fn headers_say_the_view_in_the_ways_that_clients_have() {
        let said = |pairs: &[(&'static str, &str)]| {
            let headers = pairs.iter().map(|(name, value)| {
                (http::HeaderName::from_static(name), http::HeaderValue::from_str(value).unwrap())
            });
            Said::of(&headers.collect())
        };
        let (params, prefix) = ("x-goog-request-params", "google-cloud-resource-prefix");
        let view = "projects/p/instances/i/tables/t/authorizedViews/v";
        let escaped =
            "authorized_view_name=projects%2Fp%2Finstances%2Fi%2Ftables%2Ft%2FauthorizedViews%2Fv&x=";
        assert_eq!(said(&[(params, escaped)]).view.as_deref(), Some(view));
        assert_eq!(
            said(&[(params, &format!("a=b&authorized_view_name={view}"))]).view.as_deref(),
            Some(view)
        );
        let go = said(&[(params, "table_name=T&app_profile_id="), (prefix, view)]);
        assert_eq!(go, Said { table: Some("T".into()), view: Some(view.into()) });
        assert_eq!(said(&[(prefix, "projects/p/instances/i/tables/t")]), Said::default());
        assert_eq!(said(&[(params, "table_name=&authorized_view_name=&%ff")]), Said::default());
    }
}
