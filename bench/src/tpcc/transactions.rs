//! The five transactions of TPC-C (its clauses 2.4 to 2.8), without terminals and think time.

use super::access::{Access, Outcome};
use super::schema::{
    Row, Table, customer, district, key, last_name, line, name_key, order, parts, stock, warehouse,
};
use crate::failure::Result;
use crate::workload::random::Rng;
use std::sync::atomic::{AtomicU32, Ordering};

/// The five, with how many of a hundred each is: as the paper on offloaded compaction has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Kind {
    pub(crate) const ALL: [(Kind, u64, &'static str); 5] = [
        (Kind::NewOrder, 45, "New-Order"),
        (Kind::Payment, 43, "Payment"),
        (Kind::OrderStatus, 4, "Order-Status"),
        (Kind::Delivery, 4, "Delivery"),
        (Kind::StockLevel, 4, "Stock-Level"),
    ];

    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut left = rng.below(100);
        for (kind, share, _) in Self::ALL {
            match left.checked_sub(share) {
                Some(rest) => left = rest,
                None => return kind,
            }
        }
        Kind::StockLevel
    }
}

/// How large the tables are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    pub(crate) warehouses: u32,
    /// Districts of each warehouse.
    pub(crate) districts: u32,
    /// Customers of each district, which begins with as many orders.
    pub(crate) customers: u32,
    pub(crate) items: u32,
}

impl Size {
    /// The sizes of the standard, with customers and items scaled.
    pub(crate) fn new(warehouses: u32, scale: f64) -> Self {
        let scaled = |n: f64| (n * scale).max(30.0) as u32;
        Self { warehouses, districts: 10, customers: scaled(3000.0), items: scaled(100_000.0) }
    }

    /// A number from 1 to `n`, some much more often than others (clause 2.1.6).
    fn uneven(rng: &mut Rng, a: u64, n: u32) -> u32 {
        let (first, second) = (rng.below(a + 1), rng.below(u64::from(n)));
        (((first | second) + 42) % u64::from(n)) as u32 + 1
    }

    pub(crate) fn customer(&self, rng: &mut Rng) -> u32 {
        Self::uneven(rng, 1023, self.customers)
    }

    pub(crate) fn item(&self, rng: &mut Rng) -> u32 {
        Self::uneven(rng, 8191, self.items)
    }

    /// A last name that customers have.
    fn last_name(&self, rng: &mut Rng) -> String {
        last_name(u64::from(Self::uneven(rng, 255, self.customers.min(1000)) - 1))
    }

    pub(crate) fn any_warehouse(&self, rng: &mut Rng) -> u32 {
        rng.below(u64::from(self.warehouses)) as u32 + 1
    }

    pub(crate) fn any_district(&self, rng: &mut Rng) -> u32 {
        rng.below(u64::from(self.districts)) as u32 + 1
    }
}

/// Below which order of a district none waits to be delivered, as deliveries found it. They look for the
/// oldest from there on: else each looks at the tombstones of all orders that were delivered before it, and
/// takes longer than the one before.
pub(crate) struct OldestWaiting {
    districts: u32,
    orders: Vec<AtomicU32>,
    /// Orders come to be in the order of their numbers, as they do where transactions are atomic.
    in_order: bool,
}

impl OldestWaiting {
    pub(crate) fn new(size: Size, in_order: bool) -> Self {
        let orders = (0..size.warehouses * size.districts).map(|_| AtomicU32::new(0)).collect();
        Self { districts: size.districts, orders, in_order }
    }

    fn of(&self, w: u32, d: u32) -> &AtomicU32 {
        &self.orders[((w - 1) * self.districts + d - 1) as usize]
    }

    /// The district's oldest order that waits was that one.
    fn note(&self, w: u32, d: u32, oldest: u32) {
        if self.in_order {
            self.of(w, d).fetch_max(oldest, Ordering::Relaxed);
        }
    }
}

/// A transaction with all that it draws, so that a second try does the same.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) kind: Kind,
    size: Size,
    home: u32,
    rng: Rng,
    /// Its number, and the moment in microseconds.
    unique: u64,
}

impl Planned {
    /// One of a terminal at that warehouse; `unique` is no other's.
    pub(crate) fn draw(size: Size, home: u32, unique: u64, rng: &mut Rng) -> Self {
        let kind = Kind::draw(rng);
        Self { kind, size, home, rng: Rng::new(rng.next(), "transaction", 0), unique }
    }

    pub(crate) fn run(&self, access: &mut dyn Access, oldest: &OldestWaiting) -> Result<Outcome> {
        let mut rng = self.rng.clone();
        match self.kind {
            Kind::NewOrder => self.new_order(access, &mut rng),
            Kind::Payment => self.payment(access, &mut rng),
            Kind::OrderStatus => self.order_status(access, &mut rng),
            Kind::Delivery => self.delivery(access, &mut rng, oldest),
            Kind::StockLevel => self.stock_level(access, &mut rng),
        }
    }

    fn new_order(&self, access: &mut dyn Access, rng: &mut Rng) -> Result<Outcome> {
        let (w, d, c) = (self.home, self.size.any_district(rng), self.size.customer(rng));
        let lines = rng.below(11) as u32 + 5;
        // One of a hundred names an item that there is not.
        let fails = rng.below(100) == 0;
        // Nothing is written before it is known that all items are there: on a server, nothing could be taken
        // back.
        let mut wanted = Vec::new();
        for n in 1..=lines {
            let item = if fails && n == lines { self.size.items + 1 } else { self.size.item(rng) };
            let Some(of_item) = access.get(Table::Item, &key(&[item]))? else {
                return Ok(Outcome::RolledBack);
            };
            let is_remote = self.size.warehouses > 1 && rng.below(100) == 0;
            let supply = if is_remote { self.size.any_warehouse(rng) } else { w };
            wanted.push((item, of_item.numbers[0], supply, rng.below(10) as i64 + 1));
        }
        let of_warehouse = access.row(Table::Warehouse, &key(&[w]))?;
        let buyer = access.row(Table::Customer, &key(&[w, d, c]))?;
        let of_district = access
            .change(Table::District, &key(&[w, d]), &mut |row| row.numbers[district::NEXT_ORDER] += 1)?;
        let number = (of_district.numbers[district::NEXT_ORDER] - 1) as u32;
        let (is_local, mut total) = (wanted.iter().all(|(_, _, supply, _)| *supply == w), 0);
        for (n, (item, price, supply, quantity)) in (1..).zip(wanted) {
            let there = access.change(Table::Stock, &key(&[supply, item]), &mut |row| {
                let left = row.numbers[stock::QUANTITY] - quantity;
                row.numbers[stock::QUANTITY] = if left >= 10 { left } else { left + 91 };
                row.numbers[stock::YTD] += quantity;
                row.numbers[stock::ORDERS] += 1;
                row.numbers[stock::REMOTE] += i64::from(supply != w);
            })?;
            let amount = quantity * price;
            total += amount;
            let info = there.text.get(..24).unwrap_or_default();
            let row = Row::new(&[i64::from(item), i64::from(supply), 0, quantity, amount], info);
            access.put(Table::OrderLine, &key(&[w, d, number, n]), &row)?;
        }
        // What the terminal would show.
        let taxes = of_warehouse.numbers[warehouse::TAX] + of_district.numbers[district::TAX];
        std::hint::black_box(
            total * (10_000 - buyer.numbers[customer::DISCOUNT]) * (10_000 + taxes) / 100_000_000,
        );
        let numbers = [i64::from(c), self.unique as i64, 0, i64::from(lines), i64::from(is_local)];
        access.put(Table::Order, &key(&[w, d, number]), &Row::new(&numbers, ""))?;
        access.put(Table::NewOrder, &key(&[w, d, number]), &Row::default())?;
        access.put(Table::OrderByCustomer, &key(&[w, d, c, u32::MAX - number]), &Row::default())?;
        Ok(Outcome::Committed)
    }

    /// The customer of Payment and Order-Status: six of ten by last name, the middle one of those who have
    /// it.
    fn find_customer(&self, access: &mut dyn Access, rng: &mut Rng, w: u32, d: u32) -> Result<u32> {
        if rng.below(100) >= 60 {
            return Ok(self.size.customer(rng));
        }
        let last = self.size.last_name(rng);
        let (from, upto) = (name_key(w, d, &last, 0), name_key(w, d, &last, u32::MAX));
        let named = access.scan(Table::CustomerByName, from..upto, usize::MAX)?;
        let middle = named.get(named.len().saturating_sub(1) / 2);
        match middle.and_then(|(key, _)| parts(&key[24..]).first().copied()) {
            Some(customer) => Ok(customer),
            None => Err(format!("nobody in district {d} of warehouse {w} is named {last}").into()),
        }
    }

    fn payment(&self, access: &mut dyn Access, rng: &mut Rng) -> Result<Outcome> {
        let (w, d) = (self.home, self.size.any_district(rng));
        // Fifteen of a hundred pay elsewhere.
        let (of_w, of_d) = match self.size.warehouses > 1 && rng.below(100) < 15 {
            true => (self.size.any_warehouse(rng), self.size.any_district(rng)),
            false => (w, d),
        };
        let amount = rng.below(499_901) as i64 + 100;
        let c = self.find_customer(access, rng, of_w, of_d)?;
        for (table, at, ytd) in
            [(Table::Warehouse, key(&[w]), warehouse::YTD), (Table::District, key(&[w, d]), district::YTD)]
        {
            access.change(table, &at, &mut |row| row.numbers[ytd] += amount)?;
        }
        access.change(Table::Customer, &key(&[of_w, of_d, c]), &mut |payer| {
            payer.numbers[customer::BALANCE] -= amount;
            payer.numbers[customer::YTD_PAYMENT] += amount;
            payer.numbers[customer::PAYMENTS] += 1;
            if payer.numbers[customer::BAD_CREDIT] == 1 {
                let mut text = format!("{c} {of_d} {of_w} {d} {w} {amount};").into_bytes();
                text.extend_from_slice(&payer.text);
                text.truncate(500);
                payer.text = text;
            }
        })?;
        let mut at = key(&[w, d]);
        at.extend_from_slice(&self.unique.to_be_bytes());
        access.put(Table::History, &at, &Row::new(&[amount, i64::from(c)], "paid"))?;
        Ok(Outcome::Committed)
    }

    fn order_status(&self, access: &mut dyn Access, rng: &mut Rng) -> Result<Outcome> {
        let (w, d) = (self.home, self.size.any_district(rng));
        let c = self.find_customer(access, rng, w, d)?;
        access.row(Table::Customer, &key(&[w, d, c]))?;
        let newest = key(&[w, d, c])..key(&[w, d, c + 1]);
        let Some((at, _)) = access.scan(Table::OrderByCustomer, newest, 1)?.into_iter().next() else {
            return Ok(Outcome::Committed);
        };
        let number = u32::MAX - parts(&at)[3];
        let placed = access.row(Table::Order, &key(&[w, d, number]))?;
        let lines = access.scan(Table::OrderLine, lines_of(w, d, number..number + 1), usize::MAX)?;
        if lines.len() as i64 != placed.numbers[order::LINES] {
            return Err(
                format!("order {number} has {} lines, expected {:?}", lines.len(), placed.numbers).into()
            );
        }
        Ok(Outcome::Committed)
    }

    fn delivery(&self, access: &mut dyn Access, rng: &mut Rng, oldest: &OldestWaiting) -> Result<Outcome> {
        let (w, carrier) = (self.home, rng.below(10) as i64 + 1);
        for d in 1..=self.size.districts {
            let from = oldest.of(w, d).load(Ordering::Relaxed);
            let waiting = key(&[w, d, from])..key(&[w, d + 1]);
            let Some((at, _)) = access.scan(Table::NewOrder, waiting, 1)?.into_iter().next() else {
                continue;
            };
            let number = parts(&at)[2];
            oldest.note(w, d, number);
            if !access.take(Table::NewOrder, &at)? {
                // Another terminal of a server has just delivered it.
                continue;
            }
            let placed =
                access.change(Table::Order, &at, &mut |placed| placed.numbers[order::CARRIER] = carrier)?;
            let mut amount = 0;
            for (at, mut one) in
                access.scan(Table::OrderLine, lines_of(w, d, number..number + 1), usize::MAX)?
            {
                amount += one.numbers[line::AMOUNT];
                one.numbers[line::DELIVERED] = self.unique as i64;
                access.put(Table::OrderLine, &at, &one)?;
            }
            let at = key(&[w, d, placed.numbers[order::CUSTOMER] as u32]);
            access.change(Table::Customer, &at, &mut |buyer| {
                buyer.numbers[customer::BALANCE] += amount;
                buyer.numbers[customer::DELIVERIES] += 1;
            })?;
        }
        Ok(Outcome::Committed)
    }

    fn stock_level(&self, access: &mut dyn Access, rng: &mut Rng) -> Result<Outcome> {
        let (w, d, least) = (self.home, self.size.any_district(rng), rng.below(11) as i64 + 10);
        let next = access.row(Table::District, &key(&[w, d]))?.numbers[district::NEXT_ORDER] as u32;
        let recent = lines_of(w, d, next.saturating_sub(20)..next);
        let lines = access.scan(Table::OrderLine, recent, usize::MAX)?;
        let mut items: Vec<u32> = lines.iter().map(|(_, one)| one.numbers[line::ITEM] as u32).collect();
        items.sort_unstable();
        items.dedup();
        let mut low = 0;
        for item in items {
            let there = access.row(Table::Stock, &key(&[w, item]))?;
            low += u64::from(there.numbers[stock::QUANTITY] < least);
        }
        std::hint::black_box(low);
        Ok(Outcome::Committed)
    }
}

/// The keys of the lines of some orders.
pub(crate) fn lines_of(w: u32, d: u32, orders: std::ops::Range<u32>) -> std::ops::Range<Vec<u8>> {
    key(&[w, d, orders.start])..key(&[w, d, orders.end])
}
