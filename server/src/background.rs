//! Background tasks of the server: checks of regions, files, backups and changes.

use crate::net::blocking::blocking;
use crate::net::files::wide_mode;
use crate::shared::Shared;
use crate::tables::gc_sweep::Walk;
use crate::tables::regions::{RegionChanges, RegionCheck};
use crate::time::now_us;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How often regions, and files that may change, are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// One of so many checks is of all regions.
const LOOKS_AT_ALL: u64 = 10;
/// The delay and the interval of sweeps for cells that are hidden by rules that the engine cannot apply, and
/// the pause after each chunk, as a multiple of the chunk's time.
const COLLECT_FIRST: Duration = Duration::from_secs(300);
const COLLECT_EVERY: Duration = Duration::from_secs(3_600);
const COLLECT_RESTS: u32 = 9;
/// After how many failures a walk ends before its end.
const COLLECT_FAILURES: u32 = 10;
/// How often backups are made and deleted that are due.
const TEND_BACKUPS_EVERY: Duration = Duration::from_secs(60);
/// How often it is looked whether there are changes, where somebody waits for some.
const CHANGES_AGAIN: Duration = Duration::from_millis(20);

/// Begins all of it.
pub(crate) fn start(shared: &Arc<Shared>) -> [JoinHandle<()>; 5] {
    [
        tokio::spawn(look_now_and_then(shared.clone())),
        tokio::spawn(look_at_files_and_clock(shared.clone())),
        tokio::spawn(collect_now_and_then(shared.clone())),
        tokio::spawn(look_for_changes(shared.clone())),
        tokio::spawn(tend_backups_now_and_then(shared.clone())),
    ]
}

/// Checks for changes as long as somebody waits for some.
async fn look_for_changes(shared: Arc<Shared>) {
    loop {
        shared.news.awaited().await;
        shared.news.set(shared.tables.db.snapshot().seq());
        tokio::time::sleep(CHANGES_AGAIN).await;
    }
}

/// Reads certificates, tokens and secrets again if their files have changed.
fn look_at_files(shared: &Shared) {
    // These write to the log themselves.
    if let Some(compactors) = &shared.compactors {
        compactors.look_at_files();
    }
    if let Some(manager) = shared.manager() {
        manager.look_at_files();
    }
    let tls = shared.tls.as_ref().map(|tls| ("certificates", tls.look()));
    let tokens = shared.access.tokens.as_ref().map(|tokens| ("tokens", tokens.look()));
    for (what, looked) in tls.into_iter().chain(tokens) {
        match looked {
            Ok(true) => tracing::info!(what, "read again, as the file changed"),
            Ok(false) => {}
            Err(error) => tracing::error!(what, error, "the file changed and cannot be used; the old go on"),
        }
    }
}

/// Checks which files of secrets others than their owners can read, and logs changes of that.
pub(crate) fn look_at_modes(shared: &Shared) {
    let of = |(setting, file): (&str, &Path)| {
        let mode = wide_mode(file)?;
        Some(format!(
            "{setting}: the file has mode {mode:o}, which lets others in than its owner: 600 is enough"
        ))
    };
    let found: Vec<String> = shared.config.secrets().filter_map(of).collect();
    let mut wide = shared.wide_files.lock();
    if *wide != found {
        found.iter().for_each(|what| tracing::warn!("{what}"));
        *wide = found;
    }
}

/// Checks files that may change, and notes the moment, whatever else goes on.
async fn look_at_files_and_clock(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        shared.tables.moments.note(&shared.tables.db);
        let shared = shared.clone();
        let look = move || {
            look_at_files(&shared);
            look_at_modes(&shared);
            Ok(())
        };
        if let Err(e) = blocking(look).await {
            tracing::error!(error = e.message(), "files were not looked at");
        }
    }
}

/// Checks the regions every second, and removes deleted tables whose time is over.
async fn look_now_and_then(shared: Arc<Shared>) {
    let mut last = Instant::now();
    let mut whole = true;
    for look in 0u64.. {
        tokio::time::sleep(LOOK_EVERY).await;
        let seconds = last.elapsed().as_secs_f64();
        last = Instant::now();
        let shared = shared.clone();
        let look_at = RegionCheck { seconds, whole: whole || look % LOOKS_AT_ALL == 0 };
        let work = move || {
            if let Err(e) = shared.tables.drop_deleted(now_us()) {
                tracing::warn!(error = e.message(), "deleted tables whose time is over were not dropped");
            }
            let looked = shared.tables.look(shared.config.limits(), look_at);
            if look_at.whole {
                shared.hot.look(&shared.tables, now_us());
            }
            looked
        };
        whole = false;
        match blocking(work).await {
            Ok(RegionChanges { splits: 0, joins: 0, .. }) => {}
            Ok(looked) => {
                tracing::info!(splits = looked.splits, joins = looked.joins, "regions changed");
                // After a change there may be more to do.
                whole = true;
            }
            Err(e) => tracing::warn!(error = e.message(), "regions were not looked at"),
        }
    }
}

/// Makes and deletes the backups that are due. A task of its own, as a backup may take hours.
async fn tend_backups_now_and_then(shared: Arc<Shared>) {
    // Soon: something may have become due while no server ran.
    let mut wait = LOOK_EVERY;
    loop {
        tokio::time::sleep(wait).await;
        wait = TEND_BACKUPS_EVERY;
        let tables = shared.tables.clone();
        if let Err(e) = blocking(move || tables.tend_backups(now_us())).await {
            tracing::warn!(error = e.message(), "backups that are due were not made or deleted");
        }
    }
}

/// Deletes cells that are hidden by rules that the engine cannot apply, every hour, with a tenth of a core at
/// most.
async fn collect_now_and_then(shared: Arc<Shared>) {
    let mut wait = COLLECT_FIRST;
    loop {
        tokio::time::sleep(wait).await;
        wait = COLLECT_EVERY;
        for (name, table) in shared.tables.all().iter() {
            let (mut walk, mut failures) = (Walk::default(), 0);
            while failures < COLLECT_FAILURES {
                let (tables, table, began) = (shared.tables.clone(), table.clone(), Instant::now());
                let mut taken = std::mem::take(&mut walk);
                let chunk = move || Ok((tables.collect(&table, &mut taken, now_us()), taken));
                let Ok((goes_on, walked)) = blocking(chunk).await else { break };
                walk = walked;
                match goes_on {
                    Ok(true) => tokio::time::sleep(began.elapsed() * COLLECT_RESTS).await,
                    Ok(false) => break,
                    Err(e) => {
                        tracing::warn!(
                            table = name,
                            error = e.message(),
                            "cells that are gone were not deleted"
                        );
                        failures += 1;
                        tokio::time::sleep(LOOK_EVERY).await;
                    }
                }
            }
            if walk.deleted > 0 {
                tracing::info!(table = name, columns = walk.deleted, "cells that are gone were deleted");
            }
        }
    }
}
