//! What must hold of the tables at any moment between transactions (clause 3.3.2, its first four conditions).

use super::access::Access;
use super::schema::{Table, district, key, order, parts, warehouse};
use super::transactions::{Size, lines_of};
use crate::failure::Result;

/// Looks at everything; an error names what does not hold. That orders are delivered in their order only
/// holds where transactions are atomic.
pub(crate) fn check(access: &mut dyn Access, size: Size, is_atomic: bool) -> Result<()> {
    for w in 1..=size.warehouses {
        let mut taken = 0;
        for d in 1..=size.districts {
            let place = format!("district {d} of warehouse {w}");
            let row = access.row(Table::District, &key(&[w, d]))?;
            taken += row.numbers[district::YTD];
            let next = row.numbers[district::NEXT_ORDER];
            let all = key(&[w, d])..key(&[w, d + 1]);
            let orders = access.scan(Table::Order, all.clone(), usize::MAX)?;
            let last = orders.last().map_or(0, |(at, _)| i64::from(parts(at)[2]));
            if last != next - 1 || orders.len() as i64 != last {
                return Err(format!(
                    "{place}: the last order of {} is {last}, the next {next}",
                    orders.len()
                )
                .into());
            }
            let waiting = access.scan(Table::NewOrder, all, usize::MAX)?;
            let numbers: Vec<u32> = waiting.iter().map(|(at, _)| parts(at)[2]).collect();
            if let (Some(first), Some(last)) = (numbers.first(), numbers.last())
                && is_atomic
                && (last - first + 1) as usize != numbers.len()
            {
                return Err(format!("{place}: {} new orders from {first} to {last}", numbers.len()).into());
            }
            let promised: i64 = orders.iter().map(|(_, order)| order.numbers[order::LINES]).sum();
            let lines = access.scan(Table::OrderLine, lines_of(w, d, 0..u32::MAX), usize::MAX)?.len() as i64;
            if promised != lines {
                return Err(format!("{place}: orders have {promised} lines, there are {lines}").into());
            }
        }
        let ytd = access.row(Table::Warehouse, &key(&[w]))?.numbers[warehouse::YTD];
        if ytd != taken {
            return Err(format!("warehouse {w} took {ytd}, its districts {taken}").into());
        }
    }
    Ok(())
}
