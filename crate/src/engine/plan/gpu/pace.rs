//! How much work a submission may have. A GPU that is busy for long draws no page and may be reset by the system; one that gets crumbs
//! waits between them. No formula knows the speed of a GPU, so it is measured.

/// A submission that takes longer is too long.
const LONG_MS: f64 = 60.0;
/// What the next one should take then.
const TARGET_MS: f64 = 30.0;
/// A full submission that takes less is too short.
const SHORT_MS: f64 = 15.0;
/// How much more the next one may have then: kernels differ in speed, so a large step up would overshoot.
const GROWTH: u64 = 2;
/// Completion is told late, in Firefox by a timer of 100 ms. What every submission takes is not the GPU's time.
const MAX_LATENCY_MS: f64 = 110.0;
/// Bounds of the answer.
const WORK: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;

/// Follows the time of submissions.
#[derive(Debug)]
pub(super) struct Pace {
    /// Nothing before a submission was too long or too short.
    work: Option<u64>,
    /// The shortest time from submission to the word that it ended.
    latency_ms: f64,
    last_done: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            work: None,
            latency_ms: MAX_LATENCY_MS,
            last_done: 0.0,
        }
    }
}

impl Pace {
    pub(super) fn work_per_submission(&self, start: u64) -> u64 {
        self.work.unwrap_or(start)
    }

    /// A submission of `work` (0 where that is not known) that was handed over at `submitted` has ended at `done`, in milliseconds.
    pub(super) fn observe(&mut self, work: u64, submitted: f64, done: f64) {
        // it began when it was there and the one before had ended
        let took = (done - submitted.max(self.last_done)).max(0.0);
        self.last_done = done;
        self.latency_ms = self.latency_ms.min(took);
        if work == 0 {
            return;
        }
        let took = took - self.latency_ms;
        // the last submission of a run is short because the run ends
        let is_full = self.work.is_none_or(|full| work > full / 2);
        let next = if took > LONG_MS {
            let rated = (work as f64 * TARGET_MS / took) as u64;
            self.work.map_or(rated, |full| full.min(rated))
        } else if took < SHORT_MS && is_full {
            self.work.unwrap_or(work).max(work) * GROWTH
        } else {
            return;
        };
        self.work = Some(next.clamp(*WORK.start(), *WORK.end()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GPU of one speed that is fed by a run of `total` work, again and again, and tells of an end `latency` late. Gives the times that
    /// full submissions take it in the end.
    fn settle(work_per_ms: f64, latency: impl Fn(f64) -> f64, total: u64, start: u64) -> Vec<f64> {
        let mut pace = Pace::default();
        pace.observe(0, 0.0, latency(0.01));
        let mut now = 1000.0;
        let mut full = Vec::new();
        for run in 0..40 {
            let mut left = total;
            while left > 0 {
                let limit = pace.work_per_submission(start);
                let work = limit.min(left);
                left -= work;
                let took = work as f64 / work_per_ms;
                if run >= 30 && work == limit {
                    full.push(took);
                }
                pace.observe(work, now, now + latency(took));
                now += latency(took);
            }
        }
        full
    }

    #[test]
    fn a_slow_gpu_gets_little_and_a_fast_one_much() {
        for work_per_ms in [1e6, 1e7, 1e8, 1e9] {
            let times = settle(work_per_ms, |ms| ms + 0.3, 400_000_000_000, 1_000_000_000);
            assert!(!times.is_empty(), "{work_per_ms}");
            for took in times {
                assert!((5.0..=100.0).contains(&took), "{work_per_ms}: {took} ms");
            }
        }
    }

    /// Completion on a timer of 100 ms hides the GPU's time; submissions must not shrink to nothing by it.
    #[test]
    fn a_late_word_is_not_a_slow_gpu() {
        let timer = |ms: f64| (ms / 100.0).ceil() * 100.0;
        let times = settle(1e8, timer, 400_000_000_000, 1_000_000_000);
        assert!(times.iter().all(|&took| took >= 10.0), "{times:?}");
    }

    #[test]
    fn the_end_of_a_run_tells_nothing() {
        let mut pace = Pace::default();
        pace.observe(0, 0.0, 0.0);
        pace.observe(1_000_000_000, 10.0, 100.0);
        let limit = pace.work_per_submission(0);
        assert!((300_000_000..400_000_000).contains(&limit), "{limit}");
        pace.observe(limit / 4, 100.0, 101.0);
        assert_eq!(pace.work_per_submission(0), limit);
    }

    /// Waiting behind another submission is not work.
    #[test]
    fn a_submission_begins_when_the_one_before_ends() {
        let mut pace = Pace::default();
        pace.observe(0, 0.0, 0.0);
        pace.observe(1_000_000_000, 0.0, 50.0);
        pace.observe(1_000_000_000, 1.0, 95.0);
        assert_eq!(pace.work_per_submission(7), 7);
    }
}
