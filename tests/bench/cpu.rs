//! CPU time of this process: on an adapter that is software it is what the work costs, whoever else uses the machine.

/// CPU seconds of this process, all threads, while `work` runs; 0 where the system does not tell them.
pub fn cpu_seconds(work: impl FnOnce()) -> f64 {
    let start = process_seconds();
    work();
    process_seconds() - start
}

/// CPU seconds of this process until now.
#[must_use]
pub fn process_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // after the name, which ends with the last parenthesis: fields 3...; user and system time are 14 and 15, in 1/100 s
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let ticks: f64 = fields
        .skip(11)
        .take(2)
        .filter_map(|x| x.parse::<f64>().ok())
        .sum();
    ticks / 100.0
}
