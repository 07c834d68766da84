//! The last hour of each app in four numbers, taken every ten seconds from what renewals tell, in RAM alone.

use std::collections::{HashMap, VecDeque};

use moneta_control::Control;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::fleet::{Fleet, Sums};

/// Points of a series: an hour.
const POINTS: usize = 360;
/// Series at most; apps beyond them have none. A point takes 24 bytes.
const SERIES: usize = 512;

/// An environment and an app; an empty app is all of them.
type Key = (String, String);

#[derive(Clone, Copy, Debug)]
struct Point {
    at: u64,
    gets: f32,
    items: f32,
    p99: f32,
    good: u32,
}

/// All series.
#[derive(Debug, Default)]
pub(crate) struct Series(Mutex<HashMap<Key, VecDeque<Point>>>);

impl Series {
    /// Takes the numbers of now.
    pub(crate) fn take(&self, control: &Control) {
        let taken = control.look(|state, now| {
            let names: Vec<String> = state.environment_names().map(ToString::to_string).collect();
            let of = |name: String| {
                let fleet = Fleet::of(state, now, &name);
                (name, fleet)
            };
            names.into_iter().map(of).collect::<Vec<_>>()
        });
        // Not in step: a hole in the chart.
        let Ok(taken) = taken else { return };
        let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut series = self.0.lock();
        // What is gone for an hour leaves.
        series.retain(|_, points| points.back().is_some_and(|last| at.saturating_sub(last.at) < 3_600));
        for (environment, fleet) in taken {
            put(&mut series, (environment.clone(), String::new()), at, &fleet.sums);
            for app in fleet.apps {
                put(&mut series, (environment.clone(), app.name), at, &app.sums);
            }
        }
    }

    /// The series of an app, or of all: columns, as the chart takes them.
    pub(crate) fn columns(&self, environment: &str, app: &str) -> Value {
        let series = self.0.lock();
        let points = series.get(&(environment.to_owned(), app.to_owned()));
        let column = |of: fn(&Point) -> f64| -> Vec<f64> { points.into_iter().flatten().map(of).collect() };
        json!({
            "at": column(|point| point.at as f64),
            "gets": column(|point| f64::from(point.gets)),
            "items": column(|point| f64::from(point.items)),
            "p99": column(|point| f64::from(point.p99)),
            "up": column(|point| f64::from(point.good)),
        })
    }
}

fn put(series: &mut HashMap<Key, VecDeque<Point>>, key: Key, at: u64, sums: &Sums) {
    if series.len() >= SERIES && !series.contains_key(&key) {
        return;
    }
    let points = series.entry(key).or_default();
    if points.len() >= POINTS {
        points.pop_front();
    }
    let good = u32::try_from(sums.good).unwrap_or(u32::MAX);
    points.push_back(Point { at, gets: sums.gets as f32, items: sums.items as f32, p99: sums.p99 as f32, good });
}
