//! What was measured, as JSON and as a Markdown table. The page writes the same JSON.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::{Deserialize, Serialize};

/// Outputs of two engines may differ by this much of the largest value.
pub const TOLERANCE: f64 = 1e-3;

/// One run of the bench.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// `native` or `chromium`.
    pub place: String,
    /// The adapter's name.
    pub adapter: String,
    /// Whether it is software on a CPU: then CPU time is the figure that others on the machine do not disturb.
    pub software: bool,
    /// The best rate of a matrix product that was measured, GFLOP a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_gflops: Option<f64>,
    /// In the order of the table.
    pub rows: Vec<RowReport>,
}

/// A row.
#[derive(Debug, Serialize, Deserialize)]
pub struct RowReport {
    /// See [`crate::rows::Row::name`].
    pub name: String,
    /// See [`crate::rows::Row::title`].
    pub title: String,
    /// Multiply-adds.
    pub macs: u64,
    /// By the engine's name.
    pub engines: BTreeMap<String, Figures>,
}

/// What one engine took. Times are medians, of one call.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Why it could not do the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Making the network and uploading its weights, ms.
    pub load_ms: f64,
    /// The first call, with whatever is compiled for it, ms.
    pub first_ms: f64,
    /// Work that is done once a picture, ms.
    pub begin_ms: f64,
    /// Wall time, ms.
    pub wall_ms: f64,
    /// CPU time of the process that does the adapter's work, ms.
    pub cpu_ms: f64,
    /// Most bytes of GPU buffers.
    pub peak_bytes: Option<u64>,
    /// Largest difference from the plan engine's output, as a part of its largest value.
    pub difference: Option<f64>,
    /// Wall times of the samples, ms.
    pub samples_ms: Vec<f64>,
}

impl Figures {
    fn cost(&self, software: bool) -> Option<f64> {
        let cost = if software && self.cpu_ms > 0.0 {
            self.cpu_ms
        } else {
            self.wall_ms
        };
        (self.error.is_none() && cost > 0.0).then_some(cost)
    }
}

/// What a peer must be beaten by.
struct Target {
    peer: &'static str,
    /// Rows it is about; empty for all.
    rows: &'static [&'static str],
    /// At least so many times the plan engine's time.
    times: f64,
    /// At least so many times its bytes.
    bytes: f64,
}

const TARGETS: [Target; 4] = [
    Target {
        peer: "onnxruntime-web",
        rows: &["conv", "matmul"],
        times: 3.0,
        bytes: 0.0,
    },
    Target {
        peer: "onnxruntime-web",
        rows: &["tiny-unet"],
        times: 5.0,
        bytes: 0.0,
    },
    Target {
        peer: "onnxruntime-web",
        rows: &[],
        times: 0.0,
        bytes: 2.0,
    },
    Target {
        peer: "burn-wgpu",
        rows: &[],
        times: 1.0,
        bytes: 0.0,
    },
];

/// This crate's engine.
const OURS: &str = "plan";

impl Report {
    /// The table, and which targets were missed.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = format!("Adapter: {} ({})\n\n", self.adapter, self.place);
        out += "| row | engine | load ms | first ms | ms | CPU ms | GFLOP/s | times ours, wall | times ours, CPU | peak MiB | times ours | difference |\n";
        out += "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
        for row in &self.rows {
            let ours = row.engines.get(OURS);
            // ours first, then by name
            let others = row.engines.iter().filter(|(name, _)| *name != OURS);
            for (name, figures) in row.engines.get_key_value(OURS).into_iter().chain(others) {
                let _ = writeln!(out, "{}", row.line(name, figures, ours, self.software));
            }
        }
        if let Some(best) = self.best_gflops {
            let _ = writeln!(out, "\nBest matrix product: {best:.1} GFLOP/s");
            for row in &self.rows {
                let ours = row.engines.get(OURS);
                if let Some(cost) = ours.and_then(|ours| ours.cost(self.software)) {
                    let part = 100.0 * row.gflops(cost) / best;
                    let _ = writeln!(out, "- {}: {part:.0} % of it", row.title);
                }
            }
        }
        let _ = writeln!(
            out,
            "\nRates and targets go by {}.",
            if self.software {
                "CPU time"
            } else {
                "wall time"
            }
        );
        for fault in self.faults() {
            let _ = writeln!(out, "- missed: {fault}");
        }
        out
    }

    /// Rows whose outputs differ or that an engine could not do: such a row compares nothing.
    #[must_use]
    pub fn wrong(&self) -> Vec<String> {
        let mut list = Vec::new();
        for row in &self.rows {
            for (name, figures) in &row.engines {
                if let Some(error) = &figures.error {
                    list.push(format!("{}: {name} failed: {error}", row.title));
                } else if figures
                    .difference
                    .is_some_and(|difference| difference.is_nan() || difference > TOLERANCE)
                {
                    let difference = figures.difference.unwrap_or_default();
                    list.push(format!("{}: {name} differs by {difference:.1e}", row.title));
                }
            }
        }
        list
    }

    fn faults(&self) -> Vec<String> {
        let mut list = self.wrong();
        for row in &self.rows {
            let Some(ours) = row.engines.get(OURS) else {
                continue;
            };
            for target in &TARGETS {
                let applies = target.rows.is_empty() || target.rows.contains(&row.name.as_str());
                let (true, Some(peer)) = (applies, row.engines.get(target.peer)) else {
                    continue;
                };
                let name = target.peer;
                if let (Some(a), Some(b)) = (peer.cost(self.software), ours.cost(self.software))
                    && a / b < target.times
                {
                    let (is, wanted) = (a / b, target.times);
                    list.push(format!(
                        "{}: {name} takes {is:.2} times as long as ours, {wanted} wanted",
                        row.title
                    ));
                }
                if let (Some(a), Some(b)) = (peer.peak_bytes, ours.peak_bytes)
                    && (a as f64) < target.bytes * b as f64
                {
                    let (is, wanted) = (a as f64 / b as f64, target.bytes);
                    list.push(format!(
                        "{}: {name} takes {is:.2} times our bytes, {wanted} wanted",
                        row.title
                    ));
                }
            }
        }
        list
    }
}

impl RowReport {
    fn gflops(&self, cost_ms: f64) -> f64 {
        2.0 * self.macs as f64 / 1e6 / cost_ms
    }

    fn line(
        &self,
        name: &str,
        figures: &Figures,
        ours: Option<&Figures>,
        software: bool,
    ) -> String {
        if let Some(error) = &figures.error {
            return format!("| {} | {name} | {error} |", self.title);
        }
        let times = |value: fn(&Figures) -> f64| match ours.map(value) {
            Some(ours) if ours > 0.0 && value(figures) > 0.0 => {
                format!("{:.2}", value(figures) / ours)
            }
            _ => "-".to_owned(),
        };
        let peak = figures
            .peak_bytes
            .map(|bytes| bytes as f64 / f64::from(1 << 20));
        format!(
            "| {} | {name} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {} | {} | {} | {} | {} |",
            self.title,
            figures.load_ms,
            figures.first_ms,
            figures.wall_ms,
            figures.cpu_ms,
            figures.cost(software).map_or(0.0, |cost| self.gflops(cost)),
            times(|figures| figures.wall_ms),
            times(|figures| figures.cpu_ms),
            peak.map_or("-".to_owned(), |mib| format!("{mib:.2}")),
            times(|figures| figures.peak_bytes.unwrap_or_default() as f64),
            figures
                .difference
                .map_or("-".to_owned(), |difference| format!("{difference:.0e}")),
        )
    }
}
