//! Aggregate families: what their cells add up to.
//!
//! A cell's value is a state, which is what clients read. A write merges another state into it by a merge
//! operator: a number, or for the number of distinct values a sketch (HyperLogLog++ as ZetaSketch writes it,
//! of which `HLL_COUNT.EXTRACT` and ZetaSketch's libraries make a number).

use crate::proto::admin;
use crate::proto::admin::r#type::{self, Kind, aggregate::Aggregator};
use crate::proto::data::value;
use serde::{Deserialize, Serialize};
use siltstone::{Error, ErrorKind, MergeOperator};
use tonic::Status;
use zetasketch::{Accumulator, HyperLogLogPlusPlus, ValueKind};

/// Precision of our sketches: 2^15 registers, an error of 0.6 %; 32 KiB when full.
const PRECISION: i32 = 15;
/// The highest precision of sketches from clients: the result of a merge has the lower precision of the two.
const PRECISION_MAX: i32 = 18;
/// How much finer sparse sketches are. With other ratios some cannot be merged with each other.
const SPARSE_FINER: i32 = 5;
/// Bytes of a sketch, at most: one of the highest precision has 2^18 registers.
const SKETCH_MAX: usize = 300 << 10;

/// How the cells of an aggregate family are combined. Numbers are 8 bytes, big-endian, signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Aggregate {
    Sum,
    Min,
    Max,
    /// Distinct numbers.
    DistinctInt64,
    /// Distinct strings of bytes.
    DistinctBytes,
    /// Distinct texts.
    DistinctString,
}

impl Aggregate {
    pub(crate) const ALL: [Self; 6] =
        [Self::Sum, Self::Min, Self::Max, Self::DistinctInt64, Self::DistinctBytes, Self::DistinctString];

    /// The name of its merge operator.
    pub(crate) fn operator(self) -> &'static str {
        match self {
            Self::Sum => "int64-sum",
            Self::Min => "int64-min",
            Self::Max => "int64-max",
            Self::DistinctInt64 => "int64-distinct",
            Self::DistinctBytes => "bytes-distinct",
            Self::DistinctString => "string-distinct",
        }
    }

    pub(crate) fn to_message(self) -> admin::Type {
        use r#type::{Aggregate as Message, Bytes, Int64, String as Text, aggregate, bytes, int64, string};
        let of = |kind| Some(Box::new(admin::Type { kind: Some(kind) }));
        let int64 = || {
            let big_endian = int64::encoding::BigEndianBytes::default();
            let encoding = int64::encoding::Encoding::BigEndianBytes(big_endian);
            of(Kind::Int64Type(Int64 { encoding: Some(int64::Encoding { encoding: Some(encoding) }) }))
        };
        let bytes = || {
            let encoding = bytes::encoding::Encoding::Raw(bytes::encoding::Raw::default());
            of(Kind::BytesType(Bytes { encoding: Some(bytes::Encoding { encoding: Some(encoding) }) }))
        };
        let text = || {
            let encoding = string::encoding::Encoding::Utf8Bytes(string::encoding::Utf8Bytes::default());
            of(Kind::StringType(Text { encoding: Some(string::Encoding { encoding: Some(encoding) }) }))
        };
        let distinct = || Aggregator::HllppUniqueCount(aggregate::HyperLogLogPlusPlusUniqueCount {});
        let (input_type, state_type, aggregator) = match self {
            Self::Sum => (int64(), int64(), Aggregator::Sum(aggregate::Sum {})),
            Self::Min => (int64(), int64(), Aggregator::Min(aggregate::Min {})),
            Self::Max => (int64(), int64(), Aggregator::Max(aggregate::Max {})),
            Self::DistinctInt64 => (int64(), bytes(), distinct()),
            Self::DistinctBytes => (bytes(), bytes(), distinct()),
            Self::DistinctString => (text(), bytes(), distinct()),
        };
        let message = Message { input_type, state_type, aggregator: Some(aggregator) };
        admin::Type { kind: Some(Kind::AggregateType(Box::new(message))) }
    }

    /// `None` for a family that is no aggregate.
    pub(crate) fn from_message(value_type: Option<&admin::Type>) -> Result<Option<Self>, Status> {
        let Some(Kind::AggregateType(aggregate)) = value_type.and_then(|of| of.kind.as_ref()) else {
            return Ok(None);
        };
        let input = aggregate.input_type.as_ref().and_then(|of| of.kind.as_ref());
        if let Some(Kind::Int64Type(int64)) = input
            && let Some(r#type::int64::Encoding { encoding: Some(encoding) }) = &int64.encoding
            && let r#type::int64::encoding::Encoding::OrderedCodeBytes(_) = encoding
        {
            return Err(Status::unimplemented(
                "ordered_code_bytes as the encoding of an aggregate's input_type",
            ));
        }
        match (&aggregate.aggregator, input) {
            (None, _) => Err(Status::invalid_argument("an aggregate without an aggregator")),
            (Some(Aggregator::Sum(_)), Some(Kind::Int64Type(_))) => Ok(Some(Self::Sum)),
            (Some(Aggregator::Min(_)), Some(Kind::Int64Type(_))) => Ok(Some(Self::Min)),
            (Some(Aggregator::Max(_)), Some(Kind::Int64Type(_))) => Ok(Some(Self::Max)),
            (Some(Aggregator::HllppUniqueCount(_)), Some(Kind::Int64Type(_))) => {
                Ok(Some(Self::DistinctInt64))
            }
            (Some(Aggregator::HllppUniqueCount(_)), Some(Kind::BytesType(_))) => {
                Ok(Some(Self::DistinctBytes))
            }
            (Some(Aggregator::HllppUniqueCount(_)), Some(Kind::StringType(_))) => {
                Ok(Some(Self::DistinctString))
            }
            (Some(Aggregator::HllppUniqueCount(_)), _) => {
                Err(Status::invalid_argument("distinct values can be of type int64, bytes or string"))
            }
            (Some(_), _) => {
                Err(Status::invalid_argument("the input of a sum, min or max must be of type int64"))
            }
        }
    }

    /// The state of one value.
    pub(crate) fn state_of(self, input: Option<&value::Kind>) -> Result<Vec<u8>, Status> {
        let wrong =
            |kind: &str| Err(Status::invalid_argument(format!("the input of add_to_cell must be {kind}")));
        let sketch = |made: zetasketch::Result<HyperLogLogPlusPlus>,
                      add: &dyn Fn(&mut HyperLogLogPlusPlus) -> zetasketch::Result<()>| {
            let mut sketch = made.map_err(|e| Status::internal(e.to_string()))?;
            add(&mut sketch).map_err(|e| Status::internal(e.to_string()))?;
            Ok(sketch.serialize())
        };
        match (self, input) {
            (Self::Sum | Self::Min | Self::Max, Some(value::Kind::IntValue(n))) => {
                Ok(n.to_be_bytes().to_vec())
            }
            (Self::DistinctInt64, Some(value::Kind::IntValue(n))) => {
                sketch(HyperLogLogPlusPlus::for_longs(PRECISION), &|sketch| sketch.add_long(*n))
            }
            (Self::DistinctBytes, Some(value::Kind::RawValue(bytes) | value::Kind::BytesValue(bytes))) => {
                sketch(HyperLogLogPlusPlus::for_strings(PRECISION), &|sketch| sketch.add_bytes(bytes))
            }
            (Self::DistinctString, Some(value::Kind::StringValue(text))) => {
                sketch(HyperLogLogPlusPlus::for_strings(PRECISION), &|sketch| sketch.add_str(text))
            }
            (Self::Sum | Self::Min | Self::Max | Self::DistinctInt64, _) => wrong("an int_value"),
            (Self::DistinctBytes, _) => wrong("a raw_value or bytes_value"),
            (Self::DistinctString, _) => wrong("a string_value"),
        }
    }

    /// Refuses what is no state of this aggregate.
    pub(crate) fn check_state(self, state: &[u8]) -> Result<(), Status> {
        let kind = match self {
            Self::Sum | Self::Min | Self::Max if state.len() == 8 => return Ok(()),
            Self::Sum | Self::Min | Self::Max => {
                let message = format!("an aggregate of int64 takes 8 bytes, not {}", state.len());
                return Err(Status::invalid_argument(message));
            }
            Self::DistinctInt64 => ValueKind::Long,
            Self::DistinctBytes | Self::DistinctString => ValueKind::BytesOrString,
        };
        let refused = |why: String| Status::invalid_argument(format!("the sketch to be merged: {why}"));
        if state.len() > SKETCH_MAX {
            return Err(refused(format!("it has {} bytes, the limit is {SKETCH_MAX}", state.len())));
        }
        let sketch = HyperLogLogPlusPlus::from_bytes(state).map_err(|e| refused(e.to_string()))?;
        if sketch.value_kind() != Some(kind) {
            return Err(refused(format!("it is of {:?}, and the family of {kind:?}", sketch.value_kind())));
        }
        let (precision, sparse) = (sketch.normal_precision(), sketch.sparse_precision());
        if precision > PRECISION_MAX || sparse != precision + SPARSE_FINER {
            return Err(refused(format!(
                "its precisions are {precision} and {sparse}; the first may be {PRECISION_MAX} at most, the other must \
                 be {SPARSE_FINER} more"
            )));
        }
        // Also that it goes together with ours.
        merged(&[&self.empty()?, state]).map(drop).map_err(|e| refused(e.to_string()))
    }

    fn empty(self) -> Result<Vec<u8>, Status> {
        let sketch = match self {
            Self::DistinctInt64 => HyperLogLogPlusPlus::for_longs(PRECISION),
            _ => HyperLogLogPlusPlus::for_strings(PRECISION),
        };
        sketch.map(|mut sketch| sketch.serialize()).map_err(|e| Status::internal(e.to_string()))
    }
}

/// One sketch of several.
fn merged(states: &[&[u8]]) -> zetasketch::Result<Vec<u8>> {
    let mut all = Accumulator::new();
    states.iter().try_for_each(|state| all.add_bytes(state))?;
    Ok(all.serialize().unwrap_or_default())
}

impl MergeOperator for Aggregate {
    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> siltstone::Result<Vec<u8>> {
        let states = base.into_iter().chain(operands.iter().copied());
        let combine = match self {
            Self::Sum => i64::wrapping_add,
            Self::Min => i64::min,
            Self::Max => i64::max,
            Self::DistinctInt64 | Self::DistinctBytes | Self::DistinctString => {
                let refused = |e: zetasketch::Error| Error::new(ErrorKind::MergeRefused, e.to_string());
                return merged(&states.collect::<Vec<_>>()).map_err(refused);
            }
        };
        let mut numbers = states.map(|bytes| match bytes.try_into() {
            Ok(bytes) => Ok(i64::from_be_bytes(bytes)),
            Err(_) => Err(Error::new(ErrorKind::MergeRefused, "a value of an aggregate is no int64")),
        });
        let first = numbers.next().unwrap_or(Ok(0))?;
        let result = numbers.try_fold(first, |result, n| n.map(|n| combine(result, n)))?;
        Ok(result.to_be_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_aggregate_is_itself_again_as_a_message() {
        for aggregate in Aggregate::ALL {
            assert_eq!(Aggregate::from_message(Some(&aggregate.to_message())).unwrap(), Some(aggregate));
        }
    }

    #[test]
    fn an_encoding_that_states_do_not_have_is_refused() {
        use r#type::int64::encoding::{Encoding, OrderedCodeBytes};
        let ordered =
            r#type::int64::Encoding { encoding: Some(Encoding::OrderedCodeBytes(OrderedCodeBytes {})) };
        let mut sum = Aggregate::Sum.to_message();
        let Some(Kind::AggregateType(of)) = &mut sum.kind else { panic!("no aggregate") };
        let int64 = r#type::Int64 { encoding: Some(ordered) };
        of.input_type = Some(Box::new(admin::Type { kind: Some(Kind::Int64Type(int64)) }));
        let refused = Aggregate::from_message(Some(&sum)).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unimplemented);
        assert!(refused.message().contains("ordered_code_bytes"), "{refused}");
    }

    #[test]
    fn distinct_values_are_counted_once_in_whatever_order_their_sketches_are_merged() {
        let state = |n: i64| Aggregate::DistinctInt64.state_of(Some(&value::Kind::IntValue(n))).unwrap();
        let merge = |states: &[Vec<u8>]| {
            let states: Vec<&[u8]> = states.iter().map(Vec::as_slice).collect();
            Aggregate::DistinctInt64.merge(b"", None, &states).unwrap()
        };
        let of = |range: std::ops::Range<i64>| merge(&range.map(state).collect::<Vec<_>>());
        let (left, right) = (of(0..30_000), of(20_000..50_000));
        let count = |state: &[u8]| HyperLogLogPlusPlus::from_bytes(state).unwrap().cardinality();
        let (one, other) = (merge(&[left.clone(), right.clone()]), merge(&[right, left]));
        assert_eq!(count(&one), count(&other));
        assert!((49_000..51_000).contains(&count(&one)), "{}", count(&one));
        assert_eq!(count(&of(0..7)), 7);
        assert!(one.len() < 40 << 10, "{} bytes", one.len());
    }

    #[test]
    fn what_is_no_state_is_refused() {
        let code = |aggregate: Aggregate, state: &[u8]| aggregate.check_state(state).map_err(|e| e.code());
        let refused = Err(tonic::Code::InvalidArgument);
        let state = |of: HyperLogLogPlusPlus| of.clone().serialize();
        let texts = state(HyperLogLogPlusPlus::for_strings(15).unwrap());
        assert_eq!(code(Aggregate::Sum, b"1234567"), refused);
        assert_eq!(code(Aggregate::DistinctInt64, b"no sketch"), refused);
        assert_eq!(code(Aggregate::DistinctInt64, b""), refused);
        assert_eq!(code(Aggregate::DistinctInt64, &texts), refused);
        assert_eq!(code(Aggregate::DistinctBytes, &texts), Ok(()));
        assert_eq!(
            code(Aggregate::DistinctBytes, &state(HyperLogLogPlusPlus::for_strings(20).unwrap())),
            refused
        );
        assert_eq!(
            code(Aggregate::DistinctBytes, &state(HyperLogLogPlusPlus::for_strings(12).unwrap())),
            Ok(())
        );
        let uneven = HyperLogLogPlusPlus::new(15, 18, ValueKind::BytesOrString).unwrap();
        assert_eq!(
            code(Aggregate::DistinctBytes, &state(uneven)),
            refused,
            "some could not be merged with it"
        );
        assert_eq!(code(Aggregate::DistinctBytes, &vec![0; 1 << 20]), refused);
        assert!(Aggregate::DistinctString.state_of(Some(&value::Kind::IntValue(1))).is_err());
    }
}
