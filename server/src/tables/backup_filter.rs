//! Which backups a list has, in which order, and page by page: `filter`, `order_by`, `page_size` and
//! `page_token` of ListBackups.
//!
//! A filter is made of comparisons such as `source_table:orders`, `state = READY` and
//! `(size_bytes > 1000) AND (name:"b")`, with AND, OR, NOT and parentheses. As <https://google.aip.dev/160>
//! has it, AND may be left out, and OR binds closer than AND. `:` and a word ask whether the text has it, in
//! quotes whether it is that. A token of a page holds what the last backup of the page before is ordered by,
//! so backups that come and go between the pages move no other.

use crate::proto::admin::ListBackupsRequest;
use crate::tables::backup_records::Head;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use tonic::Status;

/// Backups of a page, at most.
const PAGE_MAX: usize = 1_000;
/// Bytes of a filter, at most.
const FILTER_MAX: usize = 4 << 10;
/// How deep parentheses and NOTs may be in each other.
const DEPTH_MAX: usize = 20;
/// The state of every existing backup.
const READY: &str = "ready";
const STATES: [&str; 2] = ["creating", READY];

/// A field of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    SourceTable,
    State,
    StartTime,
    EndTime,
    ExpireTime,
    SizeBytes,
}

const FIELDS: [(&str, Field); 7] = [
    ("name", Field::Name),
    ("source_table", Field::SourceTable),
    ("state", Field::State),
    ("start_time", Field::StartTime),
    ("end_time", Field::EndTime),
    ("expire_time", Field::ExpireTime),
    ("size_bytes", Field::SizeBytes),
];

impl Field {
    fn find(name: &str) -> Result<Self, String> {
        let found = FIELDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, field)| *field).ok_or_else(|| {
            let known: Vec<_> = FIELDS.iter().map(|(name, _)| *name).collect();
            format!("\"{name}\" is no field that is known: {}", known.join(", "))
        })
    }

    fn is_text(self) -> bool {
        matches!(self, Self::Name | Self::SourceTable | Self::State)
    }

    fn value(self, name: &str, backup: &Head) -> Value {
        match self {
            Self::Name => Value::Text(name.to_string()),
            Self::SourceTable => Value::Text(backup.source_table.clone()),
            Self::State => Value::Text(READY.to_string()),
            Self::StartTime => Value::Number(backup.start_us),
            Self::EndTime => Value::Number(backup.end_us),
            Self::ExpireTime => Value::Number(backup.expire_us),
            Self::SizeBytes => Value::Number(backup.bytes),
        }
    }
}

/// The value of a backup's field, for ordering: times in microseconds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
enum Value {
    Number(u64),
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Has,
    Equal,
    NotEqual,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// Longer ones first.
const OPERATORS: [(&str, Operator); 7] = [
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("!=", Operator::NotEqual),
    ("<", Operator::Less),
    (">", Operator::More),
    ("=", Operator::Equal),
    (":", Operator::Has),
];

impl Operator {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Has | Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::AtMost => ordering.is_le(),
            Self::More => ordering.is_gt(),
            Self::AtLeast => ordering.is_ge(),
        }
    }
}

/// A condition on a backup.
#[derive(Debug)]
enum Test {
    All(Vec<Test>),
    Any(Vec<Test>),
    Not(Box<Test>),
    /// A text in small letters; `has` where it may be a part of the field's.
    Text {
        field: Field,
        operator: Operator,
        text: String,
        has: bool,
    },
    Number {
        field: Field,
        operator: Operator,
        number: u64,
    },
}

impl Test {
    fn holds(&self, name: &str, backup: &Head) -> bool {
        match self {
            Self::All(tests) => tests.iter().all(|test| test.holds(name, backup)),
            Self::Any(tests) => tests.iter().any(|test| test.holds(name, backup)),
            Self::Not(test) => !test.holds(name, backup),
            Self::Number { field, operator, number } => match field.value(name, backup) {
                Value::Number(found) => operator.holds(found.cmp(number)),
                Value::Text(_) => false,
            },
            Self::Text { field, operator, text, has } => {
                let Value::Text(found) = field.value(name, backup) else { return false };
                let found = found.to_ascii_lowercase();
                if *has {
                    return found.contains(text.as_str());
                }
                // A name is meant where there is a slash, else an id.
                let id = found.rsplit('/').next().unwrap_or(&found);
                let meant = if text.contains('/') { found.as_str() } else { id };
                operator.holds(meant.cmp(text.as_str()))
            }
        }
    }
}

/// A filter that is read from the front.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&mut self) -> &'a str {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest
    }

    fn wrong<T>(&self, what: impl std::fmt::Display) -> Result<T, Status> {
        Err(Status::invalid_argument(format!("filter, at byte {}: {what}", self.at)))
    }

    fn take(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        self.at += if is_next { text.len() } else { 0 };
        is_next
    }

    /// The letters, digits and `_` that come next.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    }

    fn keyword(&mut self, keyword: &str) -> bool {
        let word = self.word();
        let is_next = word.eq_ignore_ascii_case(keyword);
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    /// Tests that all have to hold, up to a parenthesis that closes, or the end.
    fn all(&mut self, depth: usize) -> Result<Test, Status> {
        let mut tests = vec![self.any(depth)?];
        while !self.rest().is_empty() && !self.rest().starts_with(')') {
            self.keyword("AND");
            tests.push(self.any(depth)?);
        }
        Ok(Test::All(tests))
    }

    fn any(&mut self, depth: usize) -> Result<Test, Status> {
        let mut tests = vec![self.one(depth)?];
        while self.keyword("OR") {
            tests.push(self.one(depth)?);
        }
        Ok(Test::Any(tests))
    }

    fn one(&mut self, depth: usize) -> Result<Test, Status> {
        if depth > DEPTH_MAX {
            return self.wrong(format!("more than {DEPTH_MAX} parentheses and NOTs in each other"));
        }
        if self.keyword("NOT") {
            return Ok(Test::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.take("(") {
            let test = self.all(depth + 1)?;
            return if self.take(")") { Ok(test) } else { self.wrong("a parenthesis is not closed") };
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Test, Status> {
        let name = self.word();
        if name.is_empty() {
            return self.wrong("a field is expected");
        }
        let field = Field::find(name).or_else(|what| self.wrong(what))?;
        self.at += name.len();
        let Some((_, operator)) = OPERATORS.iter().find(|(sign, _)| self.take(sign)) else {
            let signs: Vec<_> = OPERATORS.iter().map(|(sign, _)| *sign).collect();
            return self.wrong(format!("one of {} is expected behind {name}", signs.join(" ")));
        };
        let operator = *operator;
        let (text, is_quoted) = self.text()?;
        let expected =
            |what: &str| self.wrong(format!("{name} is compared with {what}, not with \"{text}\""));
        match field {
            Field::Name | Field::SourceTable => {
                let has = operator == Operator::Has && !is_quoted;
                Ok(Test::Text { field, operator, text: text.to_ascii_lowercase(), has })
            }
            Field::State => {
                let text = text.to_ascii_lowercase();
                let is_equality = matches!(operator, Operator::Has | Operator::Equal | Operator::NotEqual);
                match STATES.contains(&text.as_str()) && is_equality {
                    true => Ok(Test::Text { field, operator, text, has: false }),
                    false => expected("READY or CREATING by :, = or !="),
                }
            }
            Field::StartTime | Field::EndTime | Field::ExpireTime => {
                match text.parse::<prost_types::Timestamp>() {
                    Ok(time) => {
                        // Before 1970 there was no backup.
                        let number = crate::time::micros(time.seconds, time.nanos).unwrap_or(0);
                        Ok(Test::Number { field, operator, number })
                    }
                    Err(_) => expected("a time such as 2027-01-31T12:00:00Z"),
                }
            }
            Field::SizeBytes => match text.parse() {
                Ok(number) => Ok(Test::Number { field, operator, number }),
                Err(_) => expected("a number"),
            },
        }
    }

    /// A value, and whether it stood in quotes.
    fn text(&mut self) -> Result<(String, bool), Status> {
        let rest = self.rest();
        let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
            let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '(' | ')')).unwrap_or(rest.len());
            if end == 0 {
                return self.wrong("a value is expected");
            }
            if rest[..end].contains('*') {
                return self.wrong("`*` means nothing here; `:` asks whether a text has another");
            }
            self.at += end;
            return Ok((rest[..end].to_string(), false));
        };
        let (mut text, mut escaped) = (String::new(), false);
        for (at, c) in rest.char_indices().skip(1) {
            match c {
                _ if escaped => {
                    text.push(c);
                    escaped = false;
                }
                '\\' => escaped = true,
                _ if c == quote => {
                    self.at += at + c.len_utf8();
                    return Ok((text, true));
                }
                _ => text.push(c),
            }
        }
        self.wrong("a quote is not closed")
    }
}

/// The filter of a request, if it has one.
fn filter_of(text: &str) -> Result<Option<Test>, Status> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    if text.len() > FILTER_MAX {
        return Err(Status::invalid_argument(format!("the filter has more than {FILTER_MAX} bytes")));
    }
    let mut reader = Reader { text, at: 0 };
    let test = reader.all(0)?;
    match reader.rest().is_empty() {
        true => Ok(Some(test)),
        false => reader.wrong("a parenthesis closes nothing"),
    }
}

/// The fields that a list is ordered by, and whether downwards.
fn order_of(text: &str) -> Result<Vec<(Field, bool)>, Status> {
    if text.trim().is_empty() {
        return Ok(vec![(Field::StartTime, true)]);
    }
    let mut order = Vec::new();
    for part in text.split(',') {
        let wrong = |what: String| Status::invalid_argument(format!("order_by: {what}"));
        let words: Vec<_> = part.split_whitespace().collect();
        let (name, is_descending) = match words[..] {
            [name] => (name, false),
            [name, way] if way.eq_ignore_ascii_case("asc") => (name, false),
            [name, way] if way.eq_ignore_ascii_case("desc") => (name, true),
            _ => return Err(wrong(format!("\"{}\" is no field with \"desc\" or without", part.trim()))),
        };
        let field = Field::find(name).map_err(wrong)?;
        if order.iter().any(|(other, _)| *other == field) {
            return Err(wrong(format!("{name} is there twice")));
        }
        order.push((field, is_descending));
    }
    Ok(order)
}

/// The request of a list of backups.
#[derive(Debug)]
pub(crate) struct Query {
    filter: Option<Test>,
    order: Vec<(Field, bool)>,
    /// The key of the last backup of the page before.
    after: Option<Vec<Value>>,
    size: usize,
}

impl Query {
    pub(crate) fn new(request: &ListBackupsRequest) -> Result<Self, Status> {
        let filter = filter_of(&request.filter)?;
        let order = order_of(&request.order_by)?;
        let size = usize::try_from(request.page_size).unwrap_or(0);
        let size = if size == 0 { PAGE_MAX } else { size.min(PAGE_MAX) };
        let after = match request.page_token.is_empty() {
            true => None,
            false => Some(after_of(&request.page_token, &order)?),
        };
        Ok(Self { filter, order, after, size })
    }

    /// The key by which a backup is ordered, with its name last.
    fn keys(&self, name: &str, backup: &Head) -> Vec<Value> {
        let fields = self.order.iter().map(|(field, _)| field.value(name, backup));
        fields.chain([Value::Text(name.to_string())]).collect()
    }

    fn compare(&self, a: &[Value], b: &[Value]) -> Ordering {
        let ways = self.order.iter().map(|(_, is_descending)| *is_descending).chain([false]);
        let each = a.iter().zip(b).zip(ways);
        let compared = each.map(|((a, b), is_descending)| match is_descending {
            true => b.cmp(a),
            false => a.cmp(b),
        });
        compared.fold(Ordering::Equal, Ordering::then)
    }

    /// The backups of the page, in their order, and the token of the next one; empty where this is the last.
    pub(crate) fn page(
        &self,
        all: impl IntoIterator<Item = (String, Head)>,
    ) -> (Vec<(String, Head)>, String) {
        let is_asked = |(name, backup): &(String, Head)| {
            self.filter.as_ref().is_none_or(|filter| filter.holds(name, backup))
        };
        let is_later =
            |keys: &[Value]| self.after.as_ref().is_none_or(|after| self.compare(keys, after).is_gt());
        let with_keys = |(name, backup): (String, Head)| (self.keys(&name, &backup), (name, backup));
        let left = all.into_iter().filter(is_asked).map(with_keys);
        let mut left: Vec<_> = left.filter(|(keys, _)| is_later(keys)).collect();
        left.sort_unstable_by(|(a, _), (b, _)| self.compare(a, b));
        let has_more = left.len() > self.size;
        left.truncate(self.size);
        let last = left.last().filter(|_| has_more);
        let token = last.and_then(|(keys, _)| serde_json::to_string(keys).ok()).unwrap_or_default();
        (left.into_iter().map(|(_, backup)| backup).collect(), token)
    }
}

/// The content of a token, which must be of a list in this order.
fn after_of(token: &str, order: &[(Field, bool)]) -> Result<Vec<Value>, Status> {
    let wrong = || Status::invalid_argument("page_token is none of this server's for a list in this order");
    let values: Vec<Value> = serde_json::from_str(token).map_err(|_| wrong())?;
    let are_texts = order.iter().map(|(field, _)| field.is_text()).chain([true]);
    let fits = values.iter().map(|value| matches!(value, Value::Text(_))).eq(are_texts);
    if fits { Ok(values) } else { Err(wrong()) }
}

/// Any request, of which pages one by one are what one page of all is.
#[cfg(any(test, feature = "testing"))]
pub(crate) mod forge {
    use super::*;
    use prost::Message;

    pub(crate) fn backups() -> Vec<(String, Head)> {
        let backup = |n: u64| {
            let name = format!("projects/p/instances/i/clusters/c/backups/b{n}");
            let (start_us, bytes) = (1_000_000 * (n % 3), 10 * n);
            let source_table = format!("projects/p/instances/i/tables/t{}", n % 2);
            let (end_us, expire_us) = (start_us + 1, 9_000_000 + n);
            (name, Head { source_table, start_us, end_us, expire_us, bytes, ..Head::default() })
        };
        (0..6).map(backup).collect()
    }

    #[cfg(feature = "testing")]
    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        let request = |filter: &str, order_by: &str| ListBackupsRequest {
            filter: filter.into(),
            order_by: order_by.into(),
            page_size: 2,
            ..Default::default()
        };
        let requests = [
            request("source_table:t1", ""),
            request("(name:\"b1\") AND (start_time < \"2028-03-28T14:50:00Z\")", "start_time desc, name"),
            request("NOT state = CREATING OR size_bytes >= 20", "size_bytes,state asc"),
        ];
        requests.iter().map(Message::encode_to_vec).collect()
    }

    pub(crate) fn list(bytes: &[u8]) {
        let Ok(request) = ListBackupsRequest::decode(bytes) else { return };
        let Ok(query) = Query::new(&request) else { return };
        let whole = Query { size: PAGE_MAX, ..query };
        let (expected, token) = whole.page(backups());
        assert!(token.is_empty(), "a page of all is the last");
        let (mut found, mut query) = (Vec::new(), Query { size: 1, ..whole });
        loop {
            let (page, token) = query.page(backups());
            found.extend(page);
            if token.is_empty() {
                break;
            }
            query.after = Some(after_of(&token, &query.order).expect("a token that was given"));
        }
        assert_eq!(found, expected);
    }
}

#[cfg(test)]
mod tests {
    use super::forge::{backups, list};
    use super::*;
    use prost::Message;

    fn request(filter: &str, order_by: &str) -> ListBackupsRequest {
        ListBackupsRequest { filter: filter.into(), order_by: order_by.into(), ..Default::default() }
    }

    /// The numbers of the backups, in their order.
    fn found(request: &ListBackupsRequest) -> String {
        list(&request.encode_to_vec());
        let (page, _) = Query::new(request).unwrap().page(backups());
        page.iter().map(|(name, _)| name.rsplit('b').next().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_filter_picks_by_every_field_and_operator() {
        for (filter, expected) in [
            ("", "0 1 2 3 4 5"),
            ("name:b3", "3"),
            ("name:B3", "3"),
            ("NAME : instances/I", "0 1 2 3 4 5"),
            ("name:\"b\"", ""),
            ("name:\"b3\"", "3"),
            ("name = 'projects/p/instances/i/clusters/c/backups/b3'", "3"),
            ("name != b3", "0 1 2 4 5"),
            ("name >= b4", "4 5"),
            ("source_table:projects/p/instances/i/tables/t1", "1 3 5"),
            ("source_table=t1", "1 3 5"),
            ("source_table=t", ""),
            ("source_table:t", "0 1 2 3 4 5"),
            ("state:READY", "0 1 2 3 4 5"),
            ("state = creating", ""),
            ("state != CREATING", "0 1 2 3 4 5"),
            ("start_time < \"1970-01-01T00:00:01Z\"", "0 3"),
            ("start_time:1970-01-01T00:00:01Z", "1 4"),
            ("start_time >= 1970-01-01T00:00:01+00:00", "1 2 4 5"),
            ("start_time > 1960-01-01T00:00:00Z", "1 2 4 5"),
            ("end_time <= 1970-01-01T00:00:01.000001Z", "0 1 3 4"),
            ("expire_time > 1970-01-01T00:00:09.000003Z", "4 5"),
            ("size_bytes > 20", "3 4 5"),
            ("size_bytes:20", "2"),
            ("(source_table:t1) AND (size_bytes < 50)", "1 3"),
            ("(source_table:t1) (size_bytes < 50)", "1 3"),
            ("source_table:t1 AND size_bytes = 10 OR size_bytes = 20", "1"),
            ("size_bytes = 10 or size_bytes = 20 and source_table = t1", "1"),
            ("NOT source_table:t1 AND NOT (name:b0 OR name:b2)", "4"),
            ("not not name:b0", "0"),
            ("name:\"b\\3\"", "3"),
        ] {
            assert_eq!(found(&request(filter, "name")), expected, "{filter}");
        }
    }

    #[test]
    fn what_is_no_filter_or_order_is_refused_with_what_is_known() {
        let deep = "(".repeat(3_000);
        let nots = "NOT ".repeat(1_000);
        let long = "name:b ".repeat(1_000);
        for (filter, order_by, word) in [
            ("cluster:c", "", "name, source_table, state"),
            ("name", "", "!= < > = :"),
            ("name:", "", "a value"),
            ("name:b*", "", "`*`"),
            ("name:\"b", "", "quote"),
            ("(name:b", "", "not closed"),
            ("name:b)", "", "closes nothing"),
            ("name:b AND", "", "a field"),
            ("AND name:b", "", "is no field"),
            ("state:DONE", "", "READY"),
            ("state < READY", "", "READY"),
            ("size_bytes > many", "", "a number"),
            ("size_bytes > -1", "", "a number"),
            ("start_time > noon", "", "2027-01-31T12:00:00Z"),
            (deep.as_str(), "", "20"),
            (nots.as_str(), "", "20"),
            (long.as_str(), "", "4096"),
            ("", "cluster", "name, source_table, state"),
            ("", "name down", "desc"),
            ("", "name,", "desc"),
            ("", "name, name desc", "twice"),
        ] {
            let refused = Query::new(&request(filter, order_by)).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            assert!(refused.message().contains(word), "{filter}, {order_by}: {refused:?}, expected {word}");
        }
    }

    #[test]
    fn a_list_is_ordered_by_the_newest_or_by_fields() {
        for (order_by, expected) in [
            ("", "2 5 1 4 0 3"),
            ("name desc", "5 4 3 2 1 0"),
            ("start_time", "0 3 1 4 2 5"),
            (" start_time  desc , size_bytes desc", "5 2 4 1 3 0"),
            ("source_table desc,expire_time", "1 3 5 0 2 4"),
            ("state asc, end_time", "0 3 1 4 2 5"),
        ] {
            assert_eq!(found(&request("", order_by)), expected, "{order_by}");
        }
    }

    #[test]
    fn pages_are_one_list_though_backups_go_between_them() {
        let mut asked = ListBackupsRequest { page_size: 4, ..request("", "") };
        let (page, token) = Query::new(&asked).unwrap().page(backups());
        assert_eq!(page.len(), 4);
        asked.page_token = token;
        let last = page[3].0.clone();
        let left = backups().into_iter().filter(|(name, _)| *name != last);
        let (page, token) = Query::new(&asked).unwrap().page(left);
        let names: Vec<_> = page.iter().map(|(name, _)| name.rsplit('/').next().unwrap()).collect();
        assert_eq!((names, token.as_str()), (vec!["b0", "b3"], ""));
        for (wrong, order_by) in
            [("b3", ""), ("[]", ""), ("[\"a\",\"b\"]", ""), (asked.page_token.as_str(), "name")]
        {
            let asked = ListBackupsRequest { page_token: wrong.into(), ..request("", order_by) };
            assert!(Query::new(&asked).unwrap_err().message().contains("page_token"), "{wrong}");
        }
        for size in [0, -1, 2_000] {
            let asked = ListBackupsRequest { page_size: size, ..request("", "") };
            assert_eq!(Query::new(&asked).unwrap().page(backups()).0.len(), 6);
        }
    }
}
