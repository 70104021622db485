//! The tables as they are before the first transaction (clause 4.3).

use super::access::Put;
use super::schema::{Row, Table, key, last_name, name_key};
use super::transactions::Size;
use crate::failure::Result;
use crate::workload::random::Rng;

/// What a district has taken in, of which the warehouse has the sum.
const DISTRICT_YTD: i64 = 3_000_000;

/// Letters that look random.
fn text(rng: &mut Rng, least: u64, most: u64) -> Vec<u8> {
    let len = least + rng.below(most - least + 1);
    (0..len).map(|_| b'a' + rng.below(26) as u8).collect()
}

/// Puts the items. The parts are written apart, so that no transaction becomes large.
pub(crate) fn items(rows: &mut dyn Put, numbers: std::ops::Range<u32>) -> Result<()> {
    let mut rng = Rng::new(1, "items", u64::from(numbers.start));
    for item in numbers {
        let price = rng.below(9_901) as i64 + 100;
        rows.put(Table::Item, &key(&[item]), &Row::new(&[price, 1], text(&mut rng, 40, 74)))?;
    }
    Ok(())
}

/// Puts the stock of some items.
pub(crate) fn stock(rows: &mut dyn Put, warehouse: u32, items: std::ops::Range<u32>) -> Result<()> {
    let mut rng = Rng::new(2, "stock", u64::from(warehouse) << 32 | u64::from(items.start));
    for item in items {
        let row = Row::new(&[rng.below(91) as i64 + 10, 0, 0, 0], text(&mut rng, 266, 290));
        rows.put(Table::Stock, &key(&[warehouse, item]), &row)?;
    }
    Ok(())
}

/// Puts a warehouse without its stock and districts.
pub(crate) fn warehouse(rows: &mut dyn Put, size: Size, warehouse: u32) -> Result<()> {
    let mut rng = Rng::new(3, "warehouse", u64::from(warehouse));
    let row =
        Row::new(&[rng.below(2001) as i64, DISTRICT_YTD * i64::from(size.districts)], text(&mut rng, 70, 90));
    rows.put(Table::Warehouse, &key(&[warehouse]), &row)
}

/// Puts a district with its customers and orders.
pub(crate) fn district(rows: &mut dyn Put, size: Size, w: u32, d: u32) -> Result<()> {
    let mut rng = Rng::new(4, "district", u64::from(w) << 32 | u64::from(d));
    let numbers = [rng.below(2001) as i64, DISTRICT_YTD, i64::from(size.customers) + 1];
    rows.put(Table::District, &key(&[w, d]), &Row::new(&numbers, text(&mut rng, 70, 90)))?;
    for c in 1..=size.customers {
        let bad = i64::from(rng.below(10) == 0);
        let numbers = [rng.below(5001) as i64, bad, -1_000, 1_000, 1, 0];
        rows.put(Table::Customer, &key(&[w, d, c]), &Row::new(&numbers, text(&mut rng, 400, 600)))?;
        let last = last_name(u64::from(c - 1) % 1000);
        rows.put(Table::CustomerByName, &name_key(w, d, &last, c), &Row::default())?;
    }
    for number in 1..=size.customers {
        // Each customer has one, in an order that looks random; the last tenth is not delivered.
        let c = (u64::from(number) * 7_919 % u64::from(size.customers)) as u32 + 1;
        let (lines, waits) = (rng.below(11) as u32 + 5, number > size.customers / 10 * 9);
        let (carrier, delivered) = if waits { (0, 0) } else { (rng.below(10) as i64 + 1, 1) };
        let row = Row::new(&[i64::from(c), 1, carrier, i64::from(lines), 1], "");
        rows.put(Table::Order, &key(&[w, d, number]), &row)?;
        rows.put(Table::OrderByCustomer, &key(&[w, d, c, u32::MAX - number]), &Row::default())?;
        if waits {
            rows.put(Table::NewOrder, &key(&[w, d, number]), &Row::default())?;
        }
        for n in 1..=lines {
            let item = rng.below(u64::from(size.items)) as i64 + 1;
            let amount = if waits { rng.below(999_999) as i64 + 1 } else { 0 };
            let row = Row::new(&[item, i64::from(w), delivered, 5, amount], text(&mut rng, 24, 24));
            rows.put(Table::OrderLine, &key(&[w, d, number, n]), &row)?;
        }
    }
    Ok(())
}
