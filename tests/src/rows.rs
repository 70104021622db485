//! Every campaign by name.

use crate::campaign::Row;

/// In the order of the table of goals.
pub const ROWS: &[Row] = &[
    crate::power::POWER,
    crate::twice::TWICE,
    crate::faults::FAULTS,
    crate::faults::SYNC,
    crate::faults::FULL,
    crate::small_disk::SMALL_DISK,
    crate::faults::REPLAY,
    crate::metamorphic::METAMORPHIC,
    crate::random::MODEL,
    crate::between::BETWEEN,
    crate::corners::CORNERS,
    crate::objects::OBJECTS,
    crate::offload::OFFLOAD,
    crate::regions::REGIONS,
    crate::torn::TORN,
    crate::copies::COPIES,
    crate::rot::ROT,
    crate::rot::EVERY_BIT,
    crate::rot::RESCUE,
    crate::strangers::STRANGERS,
];
