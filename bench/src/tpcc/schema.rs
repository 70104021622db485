//! The nine tables of TPC-C, and two indices: their keys, and rows as some numbers and a text.

use crate::failure::Result;

/// A table, or an index of one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Table {
    Warehouse,
    District,
    Customer,
    History,
    NewOrder,
    Order,
    OrderLine,
    Item,
    Stock,
    /// Customers of a district by last name.
    CustomerByName,
    /// Orders of a customer, the newest first.
    OrderByCustomer,
}

impl Table {
    pub(crate) const ALL: [Table; 11] = [
        Table::Warehouse,
        Table::District,
        Table::Customer,
        Table::History,
        Table::NewOrder,
        Table::Order,
        Table::OrderLine,
        Table::Item,
        Table::Stock,
        Table::CustomerByName,
        Table::OrderByCustomer,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Table::Warehouse => "warehouse",
            Table::District => "district",
            Table::Customer => "customer",
            Table::History => "history",
            Table::NewOrder => "new_order",
            Table::Order => "orders",
            Table::OrderLine => "order_line",
            Table::Item => "item",
            Table::Stock => "stock",
            Table::CustomerByName => "customer_by_name",
            Table::OrderByCustomer => "order_by_customer",
        }
    }
}

/// A key of numbers, which sort as they do.
pub(crate) fn key(parts: &[u32]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.to_be_bytes()).collect()
}

/// The numbers of a key.
pub(crate) fn parts(key: &[u8]) -> Vec<u32> {
    key.chunks_exact(4).map(|part| u32::from_be_bytes([part[0], part[1], part[2], part[3]])).collect()
}

/// The key of a customer in the index by last name: the name, filled up, then the number.
pub(crate) fn name_key(warehouse: u32, district: u32, last: &str, customer: u32) -> Vec<u8> {
    let mut key = key(&[warehouse, district]);
    key.extend_from_slice(format!("{last:<16}").as_bytes());
    key.extend_from_slice(&customer.to_be_bytes());
    key
}

/// A row: what is counted, and the rest. Money is in cents, rates in hundredths of a per cent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Row {
    pub(crate) numbers: Vec<i64>,
    pub(crate) text: Vec<u8>,
}

impl Row {
    pub(crate) fn new(numbers: &[i64], text: impl Into<Vec<u8>>) -> Self {
        Self { numbers: numbers.to_vec(), text: text.into() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.numbers.len() as u8];
        self.numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        out.extend_from_slice(&self.text);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let cut = || "a row is cut short";
        let (count, rest) = bytes.split_first().ok_or_else(cut)?;
        let (numbers, text) = rest.split_at_checked(usize::from(*count) * 8).ok_or_else(cut)?;
        let numbers = numbers.chunks_exact(8).map(|n| i64::from_le_bytes(n.try_into().unwrap_or_default()));
        Ok(Self { numbers: numbers.collect(), text: text.to_vec() })
    }
}

/// Numbers of a warehouse.
pub(crate) mod warehouse {
    pub(crate) const TAX: usize = 0;
    pub(crate) const YTD: usize = 1;
}

/// Numbers of a district.
pub(crate) mod district {
    pub(crate) const TAX: usize = 0;
    pub(crate) const YTD: usize = 1;
    pub(crate) const NEXT_ORDER: usize = 2;
}

/// Numbers of a customer.
pub(crate) mod customer {
    pub(crate) const DISCOUNT: usize = 0;
    pub(crate) const BAD_CREDIT: usize = 1;
    pub(crate) const BALANCE: usize = 2;
    pub(crate) const YTD_PAYMENT: usize = 3;
    pub(crate) const PAYMENTS: usize = 4;
    pub(crate) const DELIVERIES: usize = 5;
}

/// Numbers of an order.
pub(crate) mod order {
    pub(crate) const CUSTOMER: usize = 0;
    pub(crate) const CARRIER: usize = 2;
    pub(crate) const LINES: usize = 3;
}

/// Numbers of a line of an order.
pub(crate) mod line {
    pub(crate) const ITEM: usize = 0;
    pub(crate) const DELIVERED: usize = 2;
    pub(crate) const AMOUNT: usize = 4;
}

/// Numbers of an item in stock.
pub(crate) mod stock {
    pub(crate) const QUANTITY: usize = 0;
    pub(crate) const YTD: usize = 1;
    pub(crate) const ORDERS: usize = 2;
    pub(crate) const REMOTE: usize = 3;
}

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// The last name with that number, below 1000.
pub(crate) fn last_name(number: u64) -> String {
    [number / 100, number / 10, number].map(|digit| SYLLABLES[(digit % 10) as usize]).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_as_they_were_and_keys_sort_as_their_numbers() {
        for row in [Row::default(), Row::new(&[1, -7, i64::MAX], "text"), Row::new(&[], "t")] {
            assert_eq!(Row::decode(&row.encode()).unwrap(), row);
        }
        assert!(Row::decode(&[]).is_err() && Row::decode(&[2, 0, 0]).is_err());
        assert!(key(&[1, 255]) < key(&[1, 256]) && key(&[1, 256]) < key(&[2, 0]));
        assert_eq!(parts(&key(&[7, 1 << 30])), [7, 1 << 30]);
        assert_eq!((last_name(371), last_name(40)), ("PRICALLYOUGHT".into(), "BARPRESBAR".into()));
    }
}
