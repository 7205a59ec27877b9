//! The table of statistics: each field of a group declares its published name and unit next to its
//! documentation.
//!
//! `stat_group!` defines a group as a struct, `stat_groups!` defines statistics as a struct of groups. Both
//! also list the fields, so that the status file, `testudo stat`, JSON and `docs/guide/statistics.md` need no
//! list of their own.
//!
//! **Invariants**
//! - A published name is never reused with another meaning: scripts and the status file depend on it.

use testudo_store::{commits::delays::StallCause, warm_restart::restore_state::RestoreState};

/// A statistic with its published name, as `testudo stat` shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Metric<'a> {
    /// Published name. It does not change between versions.
    pub name: &'static str,
    /// Title of its group.
    pub group: &'static str,
    /// Name of the field in its group.
    pub field: &'static str,
    /// Unit of the value.
    pub unit: MetricUnit,
    /// Meaning, as one paragraph of Markdown that begins with a space.
    pub help: &'static str,
    /// Current value.
    pub value: MetricValue<'a>,
}

/// Unit of a [`Metric`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricUnit {
    /// Number of objects or events.
    Count,
    /// Bytes.
    Bytes,
    /// Microseconds.
    Micros,
    /// Sequence number.
    Seqno,
    /// True or false.
    Flag,
    /// Text, possibly absent.
    Text,
}

/// Value of a [`Metric`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(untagged))]
#[non_exhaustive]
pub enum MetricValue<'a> {
    /// A count, a size, a time or a seqno.
    Number(u64),
    /// True or false.
    Flag(bool),
    /// Text; `None` if the statistic does not apply.
    Text(Option<&'a str>),
}

/// A statistic without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) name: &'static str,
    pub(crate) group: &'static str,
    pub(crate) field: &'static str,
    pub(crate) unit: MetricUnit,
    pub(crate) help: &'static str,
}

impl Description {
    pub(crate) fn with(self, value: MetricValue<'_>) -> Metric<'_> {
        let Self { name, group, field, unit, help } = self;
        Metric { name, group, field, unit, help, value }
    }
}

/// The type of a statistic.
pub(crate) trait Stat {
    fn value(&self) -> MetricValue<'_>;

    /// The number written to the status file for the value; `None` if the file does not contain it.
    fn code(&self) -> Option<u64>;

    /// Sets the value from [`Stat::code`].
    fn set_code(&mut self, code: u64);
}

impl Stat for u64 {
    fn value(&self) -> MetricValue<'_> {
        MetricValue::Number(*self)
    }

    fn code(&self) -> Option<u64> {
        Some(*self)
    }

    fn set_code(&mut self, code: u64) {
        *self = code;
    }
}

impl Stat for bool {
    fn value(&self) -> MetricValue<'_> {
        MetricValue::Flag(*self)
    }

    fn code(&self) -> Option<u64> {
        Some(u64::from(*self))
    }

    fn set_code(&mut self, code: u64) {
        *self = code != 0;
    }
}

impl Stat for StallCause {
    fn value(&self) -> MetricValue<'_> {
        MetricValue::Text(Some(self.name()))
    }

    fn code(&self) -> Option<u64> {
        Some(StallCause::code(*self))
    }

    fn set_code(&mut self, code: u64) {
        *self = Self::from_code(code);
    }
}

impl Stat for RestoreState {
    fn value(&self) -> MetricValue<'_> {
        MetricValue::Text(Some(self.name()))
    }

    fn code(&self) -> Option<u64> {
        Some(RestoreState::code(*self))
    }

    fn set_code(&mut self, code: u64) {
        *self = Self::from_code(code);
    }
}

/// Names are in the manifest, not in the status file.
impl Stat for String {
    fn value(&self) -> MetricValue<'_> {
        MetricValue::Text(Some(self))
    }

    fn code(&self) -> Option<u64> {
        None
    }

    fn set_code(&mut self, _: u64) {}
}

impl Stat for Option<String> {
    fn value(&self) -> MetricValue<'_> {
        MetricValue::Text(self.as_deref())
    }

    fn code(&self) -> Option<u64> {
        None
    }

    fn set_code(&mut self, _: u64) {}
}

/// Statistics that list their fields, in the order of the declaration.
pub(crate) trait StatGroup {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(Description, &'a dyn Stat));

    fn each_mut(&mut self, visit: &mut dyn FnMut(Description, &mut dyn Stat));

    /// Returns all statistics with their values.
    fn metrics(&self) -> Vec<Metric<'_>>
    where
        Self: Sized,
    {
        let mut metrics = Vec::new();
        self.each(&mut |metric, stat| metrics.push(metric.with(stat.value())));
        metrics
    }

    /// Lists the numbers that the status file stores.
    fn each_code(&self, mut visit: impl FnMut(&'static str, u64))
    where
        Self: Sized,
    {
        self.each(&mut |metric, stat| {
            if let Some(code) = stat.code() {
                visit(metric.name, code);
            }
        });
    }

    /// Sets the statistic called `name`, if there is one, to a number of the status file.
    fn set_code(&mut self, name: &str, code: u64)
    where
        Self: Sized,
    {
        self.each_mut(&mut |metric, stat| {
            if metric.name == name {
                stat.set_code(code);
            }
        });
    }
}

/// Defines a group of statistics: a struct whose fields are [`Stat`]s.
macro_rules! stat_group {
    (
        $(#[doc = $about:literal])+
        #[group($title:literal)]
        pub struct $group:ident {
            $(
                $(#[doc = $help:literal])+
                #[metric($name:literal, $unit:ident)]
                pub $field:ident: $value:ty,
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct $group {
            $($(#[doc = $help])+ pub $field: $value,)+
        }

        impl $group {
            $(
                #[expect(non_upper_case_globals, reason = "named for the field")]
                const $field: Description = Description {
                    name: $name,
                    group: $title,
                    field: stringify!($field),
                    unit: MetricUnit::$unit,
                    help: concat!($($help),+),
                };
            )+
        }

        impl StatGroup for $group {
            fn each<'a>(&'a self, visit: &mut dyn FnMut(Description, &'a dyn Stat)) {
                $(visit(Self::$field, &self.$field);)+
            }

            fn each_mut(&mut self, visit: &mut dyn FnMut(Description, &mut dyn Stat)) {
                $(visit(Self::$field, &mut self.$field);)+
            }
        }
    };
}

/// Defines statistics: a struct whose fields are groups.
macro_rules! stat_groups {
    (
        $(#[doc = $about:literal])+
        pub struct $stats:ident {
            $($(#[doc = $help:literal])+ pub $field:ident: $group:ty,)+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct $stats {
            $($(#[doc = $help])+ pub $field: $group,)+
        }

        impl StatGroup for $stats {
            fn each<'a>(&'a self, visit: &mut dyn FnMut(Description, &'a dyn Stat)) {
                $(StatGroup::each(&self.$field, visit);)+
            }

            fn each_mut(&mut self, visit: &mut dyn FnMut(Description, &mut dyn Stat)) {
                $(StatGroup::each_mut(&mut self.$field, visit);)+
            }
        }
    };
}

pub(super) use {stat_group, stat_groups};
