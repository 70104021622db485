//! Records as one page of HTML that needs no other file: tables, charts, settings, and the records
//! themselves, with their raw histograms, as JSON in an element that no browser runs.

use super::bars::bars;
use super::charts::charts;
use super::columns::{COLUMNS, durability};
use super::plot::{classes, escape};
use super::{
    Block, LATENCIES, Records, beside, blocks, compression_of_both, describe, digits, figure_cells, matrix,
    repeats, store, sweep, unseen,
};
use crate::record::{FigureRecord, LimitRecord, RatioRecord, RunRecord};
use std::collections::{BTreeMap, BTreeSet};

const STYLE: &str = include_str!("style.css");
const PLOTS: &str = super::plot::STYLE;

/// All records as a page.
pub(crate) fn html(records: &Records) -> String {
    let Records { runs, ratios, refusals, figures, limits } = records;
    let blocks = blocks(runs);
    let mut stores: Vec<String> = Vec::new();
    for name in runs.iter().map(store) {
        if !stores.contains(&name) {
            stores.push(name);
        }
    }
    let style = |name: &str| stores.iter().position(|s| s == name).unwrap_or_default();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>siltstone-bench</title>\n<style>\n{PLOTS}{STYLE}</style>\n</head>\n<body>\n<h1>siltstone-bench</h1>\n"
    );
    if runs.is_empty() && ratios.is_empty() && refusals.is_empty() && figures.is_empty() && limits.is_empty()
    {
        page += "<p>No records.</p>\n";
    }
    if !blocks.is_empty() {
        page += "<p>Medians over the runs of each store, which took turns. Compare operations a second only where \
                 CPU time agrees: other work on the machine moves the first and hardly the second.</p>\n";
        for line in repeats(&blocks) {
            page += &format!("<p class=\"soft\">{}.</p>\n", escape(&capital(&line)));
        }
        let links = blocks
            .iter()
            .enumerate()
            .map(|(at, b)| format!("<a href=\"#w{at}\">{}</a>\n", escape(&b.title())));
        page += &format!("<nav>\n{}</nav>\n", links.collect::<String>());
        page += &versions(runs, &stores);
    }
    page += &matrix::html(runs);
    page += &relations(records);
    page += &paper(figures);
    for (at, block) in blocks.iter().enumerate() {
        page += &section(at, block, style);
    }
    page += &machine(limits);
    page += &raw(records);
    page + "</body>\n</html>\n"
}

fn versions(runs: &[RunRecord], stores: &[String]) -> String {
    let rows = stores.iter().map(|name| {
        let of: Vec<&RunRecord> = runs.iter().filter(|run| store(run) == *name).collect();
        let all = |figure: fn(&RunRecord) -> &str| {
            let found: BTreeSet<&str> = of.iter().map(|run| figure(run)).collect();
            found.into_iter().collect::<Vec<_>>().join(", ")
        };
        vec![name.clone(), all(|r| &r.version), all(|r| durability(r.durability)), all(|r| &r.compression)]
    });
    let rows: Vec<_> = rows.collect();
    let heads = ["store", "version", "durability", "compression"];
    format!("<h2>Stores</h2>\n{}", tabled("words", &heads.map(|h| (h, "")), &rows))
}

fn section(at: usize, block: &Block<'_>, style: impl Fn(&str) -> usize) -> String {
    let mut text = format!("<h2 id=\"w{at}\">{}</h2>\n", escape(&block.title()));
    if let Some(ops) = block.ops() {
        text += &format!("<p class=\"soft\">{ops} operations a run.</p>\n");
    }
    let heads: Vec<_> =
        std::iter::once(("store", "")).chain(COLUMNS.iter().map(|c| (c.head, c.help))).collect();
    let figures = block.rows.iter();
    let rows: Vec<Vec<String>> = figures
        .map(|row| std::iter::once(row.store.clone()).chain(COLUMNS.iter().map(|c| (c.cell)(row))).collect())
        .collect();
    text += &tabled("", &heads, &rows);
    text += &by_kind(block);
    let around = unseen::rows(block);
    if !around.is_empty() {
        text += &format!("<h3>A compaction in the middle</h3>\n{}", tabled("", &unseen::HEADS, &around));
    }
    let beside = beside::rows(block);
    if !beside.is_empty() {
        text += &format!("<h3>Beside merges</h3>\n{}", tabled("", &beside::HEADS, &beside));
    }
    text += "<ul class=\"legend\">\n";
    for row in &block.rows {
        let (classes, name) = (classes(style(&row.store)), escape(&row.store));
        text += &format!(
            "<li><svg viewBox=\"0 0 34 12\" aria-hidden=\"true\"><g class=\"{classes}\">\
             <path d=\"M0 6H34\"/></g></svg>{name}</li>\n"
        );
    }
    text += "</ul>\n<div class=\"charts\">\n";
    let around = unseen::charts(block, &style).into_iter().chain(beside::charts(block, &style));
    for chart in around.chain(sweep::charts(block)).chain(charts(block, style)) {
        if let Some(svg) = chart.svg() {
            text += &format!("<figure><figcaption>{}</figcaption>\n{svg}</figure>\n", escape(&chart.title));
        }
    }
    text += "</div>\n<p class=\"soft\">Over time: the run of each store whose rate is the median. Distributions: \
             all runs together.</p>\n";
    text + &settings(block)
}

/// The latencies of each kind of operation, where there are several.
fn by_kind(block: &Block<'_>) -> String {
    let kinds = block.kinds();
    let mut rows = Vec::new();
    for row in &block.rows {
        for kind in &kinds {
            let Some(count) = row.over(|run| Some(run.latency.get(*kind)?.count as f64)) else { continue };
            let mut cells = vec![row.store.clone(), (*kind).to_string(), format!("{:.0}", count.median)];
            let figures =
                LATENCIES.iter().filter_map(|figure| row.over(|run| Some(figure(run.latency.get(*kind)?))));
            cells.extend(figures.map(|spread| digits(spread.median)));
            rows.push(cells);
        }
    }
    let heads =
        ["store", "operation", "count", "mean us", "p50 us", "p99 us", "p99.9 us", "max us"].map(|h| (h, ""));
    if kinds.len() > 1 {
        format!("<h3>By kind of operation</h3>\n{}", tabled("", &heads, &rows))
    } else {
        String::new()
    }
}

/// The settings of each store, with the seeds.
fn settings(block: &Block<'_>) -> String {
    let mut rows = Vec::new();
    for row in &block.rows {
        let mut all: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for run in &row.runs {
            all.entry("seed").or_default().insert(run.seed.to_string());
            for (name, value) in &run.settings {
                all.entry(name).or_default().insert(value.clone());
            }
        }
        for (name, values) in all {
            let values: Vec<String> = values.into_iter().collect();
            rows.push(vec![row.store.clone(), name.to_string(), values.join(", ")]);
        }
    }
    let table = tabled("words", &["store", "setting", "value"].map(|h| (h, "")), &rows);
    format!("<details><summary>Settings</summary>\n{table}</details>\n")
}

/// A row for each workload and pair of stores, a column for each metric.
fn relations(records: &Records) -> String {
    let ratios = &records.ratios;
    let refused =
        records.refusals.iter().map(|r| vec![r.workload.clone(), r.a.clone(), r.b.clone(), r.why.clone()]);
    let refused: Vec<_> = refused.collect();
    let heads = ["workload", "a", "b", "why there is no ratio"].map(|h| (h, ""));
    let refused = if refused.is_empty() {
        String::new()
    } else {
        format!("<h3>Ratios not made</h3>\n{}", tabled("words", &heads, &refused))
    };
    if ratios.is_empty() {
        return if refused.is_empty() { refused } else { format!("<h2>Ratios</h2>\n{refused}") };
    }
    let (mut metrics, mut pairs) = (Vec::new(), Vec::new());
    for ratio in ratios {
        let pair = (&ratio.workload, &ratio.a, &ratio.b);
        if !metrics.contains(&&ratio.metric) {
            metrics.push(&ratio.metric);
        }
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    let mut body = String::new();
    for (workload, a, b) in pairs {
        let below = format!("{b}{}", compression_of_both(&records.runs, workload, a, b));
        let words = [workload, a, &below].map(|word| format!("<td>{}</td>", escape(word)));
        body += &format!("<tr>{}", words.concat());
        for metric in &metrics {
            let same = |r: &&RatioRecord| (&r.workload, &r.a, &r.b, &r.metric) == (workload, a, b, metric);
            body += &ratios.iter().find(same).map_or("<td>-</td>".into(), relation);
        }
        body += "</tr>\n";
    }
    let heads: String = metrics.iter().map(|metric| format!("<th>{}</th>", escape(metric))).collect();
    format!(
        "<h2>Ratios</h2>\n<p class=\"soft\">a over b, round by round: the median, the least and the most. More is \
         better for ops_s, less for everything else. a is <span class=\"ahead\">ahead &#9650;</span> or \
         <span class=\"behind\">behind &#9660;</span> where every round agrees.</p>\n<div class=\"wide\">\
         <table class=\"words\">\n<thead><tr><th>workload</th><th>a</th><th>b</th>{heads}</tr></thead>\n\
         <tbody>\n{body}</tbody></table></div>\n{refused}"
    )
}

fn relation(ratio: &RatioRecord) -> String {
    let more_is_better = ratio.metric == "ops_s";
    let (class, sign) = match (ratio.min > 1.0, ratio.max < 1.0) {
        (false, false) => ("even", ""),
        (more, _) if more == more_is_better => ("ahead", " &#9650;"),
        _ => ("behind", " &#9660;"),
    };
    let (median, min, max) = (digits(ratio.median), digits(ratio.min), digits(ratio.max));
    let rounds = if ratio.runs == 1 { "" } else { "s" };
    format!(
        "<td class=\"number\" title=\"{} round{rounds}\"><span class=\"{class}\">{median}{sign}</span> \
         <span class=\"soft\">{min}..{max}</span></td>",
        ratio.runs
    )
}

fn paper(figures: &[FigureRecord]) -> String {
    let (heads, rows) = figure_cells(figures);
    let heads: Vec<_> = heads.into_iter().map(|head| (head, "")).collect();
    let table = tabled("words", &heads, &rows);
    match figures {
        [] => String::new(),
        _ => format!("<h2>Figures of papers, and bars</h2>\n{table}<figure>{}</figure>\n", bars(figures)),
    }
}

fn machine(limits: &[LimitRecord]) -> String {
    let limit =
        |l: &LimitRecord| vec![describe(&l.what).to_string(), format!("{} {}", digits(l.value), l.unit)];
    let rows: Vec<_> = limits.iter().map(limit).collect();
    let table = tabled("", &[("what", ""), ("measured", "")], &rows);
    if limits.is_empty() { String::new() } else { format!("<h2>Limits of this machine</h2>\n{table}") }
}

/// A table with heads and their explanations; every cell is text.
fn tabled(class: &str, heads: &[(&str, &str)], rows: &[Vec<String>]) -> String {
    let head: String = heads
        .iter()
        .map(|(head, help)| match help.is_empty() {
            true => format!("<th>{}</th>", escape(head)),
            false => format!("<th title=\"{}\">{}</th>", escape(help), escape(head)),
        })
        .collect();
    let cells =
        |row: &Vec<String>| row.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect::<String>();
    let body: String = rows.iter().map(|row| format!("<tr>{}</tr>\n", cells(row))).collect();
    format!(
        "<div class=\"wide\"><table class=\"{class}\">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )
}

/// The records as they were read, in one array. `<` is written as an escape, so that no text can end the
/// element.
fn raw(records: &Records) -> String {
    // Records are plain data with names for keys, which JSON can always hold.
    fn lines<T: serde::Serialize>(records: &[T]) -> impl Iterator<Item = String> {
        records.iter().filter_map(|record| serde_json::to_string(record).ok())
    }
    let Records { runs, ratios, refusals, figures, limits } = records;
    let all =
        lines(runs).chain(lines(ratios)).chain(lines(refusals)).chain(lines(figures)).chain(lines(limits));
    let json = all.collect::<Vec<_>>().join(",\n").replace('<', "\\u003c");
    format!("<script type=\"application/json\" id=\"records\">\n[{json}]\n</script>\n")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;

    #[test]
    fn the_page_holds_every_store_workload_ratio_and_limit() {
        let made = made_up::records();
        let page = html(&made);
        for text in [
            "<td>siltstone:default</td>",
            "<td>rocksdb:tuned</td>",
            "<td>lmdb:default</td>",
            "fillrandom, 1 thread</h2>",
            "ycsb-a, 2 threads</h2>",
            "<span class=\"ahead\">1.81 &#9650;</span> <span class=\"soft\">1.77..1.86</span>",
            "<td>only one of them was settled</td>",
            "<td>lmdb:default (compression lz4 against none)</td>",
            "<td>a paper, table 1, row 2</td>",
            "1261 MiB/s",
            "<td>64 MiB</td>",
            "prefers-color-scheme: dark",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert_eq!(page.matches("<figure>").count(), 5 + 7 + 1);
    }

    #[test]
    fn a_compaction_in_the_middle_has_its_table_and_its_plots_first() {
        let run = made_up::around_a_merge("siltstone", "default", [(9, 0.6), (9, 0.6)], [1.0, 2.0, 3.0]);
        let page = html(&Records { runs: vec![run], ..Records::default() });
        let figures: Vec<&str> = page.split("<figcaption>").skip(1).collect();
        assert!(figures[0].starts_with("p99 latency of gets while everything is merged"));
        assert_eq!((figures.len(), figures[0].matches("<rect").count()), (2 + 5, 1), "its merge is marked");
        assert!(page.contains("A compaction in the middle</h3>") && page.contains(">worst / before</th>"));
    }

    #[test]
    fn ahead_is_more_operations_or_less_of_anything_else_and_only_where_all_rounds_agree() {
        let mut ratio = made_up::records().ratios.remove(0);
        let mut class = |metric: &str, min: f64, max: f64| {
            (ratio.metric, ratio.min, ratio.max) = (metric.into(), min, max);
            let cell = relation(&ratio);
            ["ahead", "behind", "even"].into_iter().find(|class| cell.contains(class)).unwrap()
        };
        assert_eq!((class("ops_s", 1.1, 1.2), class("ops_s", 0.8, 0.9)), ("ahead", "behind"));
        assert_eq!((class("cpu_us_op", 1.1, 1.2), class("cpu_us_op", 0.8, 0.9)), ("behind", "ahead"));
        assert_eq!((class("ops_s", 0.9, 1.2), class("cpu_us_op", 0.9, 1.0)), ("even", "even"));
    }

    #[test]
    fn the_page_needs_no_other_file_and_runs_nothing() {
        let made = made_up::records();
        let page = html(&made);
        for outside in ["http", "src=", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(
            page.matches("<script").count(),
            page.matches("<script type=\"application/json\"").count()
        );
    }

    #[test]
    fn the_raw_histograms_can_be_read_out_of_the_page() {
        let mut made = made_up::records();
        made.runs[0].settings.insert("path".into(), "</script><b>".into());
        let page = html(&made);
        assert!(!page.contains("</script><b>"));
        let json = page.split("id=\"records\">").nth(1).unwrap().split("</script>").next().unwrap();
        let records: Vec<serde_json::Value> = serde_json::from_str(json).unwrap();
        assert_eq!(records.len(), made.runs.len() + 3 + 1 + 1 + 2);
        let run: RunRecord = serde_json::from_value(records[0].clone()).unwrap();
        assert_eq!(run.latency["write"].histogram, made.runs[0].latency["write"].histogram);
        assert_eq!(run.settings["path"], "</script><b>");
    }

    #[test]
    fn a_page_of_nothing_says_so() {
        let page = html(&Records::default());
        assert!(page.contains("No records.") && page.ends_with("</html>\n"));
        let mut made = made_up::records();
        made.runs.iter_mut().for_each(|run| {
            run.timeline.clear();
            run.latency.clear();
        });
        made.figures.clear();
        assert_eq!(html(&made).matches("<figure>").count(), 0, "runs without a course have no charts");
    }
}
