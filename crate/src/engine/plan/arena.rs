//! Offsets for ranges with lifetimes: dynamic storage allocation, known to be hard, so several heuristics run and the best is kept.
//!
//! Sources: greedy by size is that of TensorFlow Lite's GPU delegate (`greedy_by_size_assignment.cc`; Pisarchyk and Lee,
//! arXiv 2001.03288), best fit in order that of ggml's allocator. Everything is deterministic.

use super::liveness::{Lifetime, live_bytes};

/// A range to be placed. Sizes are already rounded up to the alignment.
pub type Item = (u64, Lifetime);

/// A place: which buffer, and where in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    /// Index of the buffer.
    pub buffer: usize,
    /// Bytes from its start.
    pub offset: u64,
}

/// Places for all items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    /// One place for each item.
    pub places: Vec<Offset>,
    /// Size of each buffer.
    pub buffers: Vec<u64>,
    /// What no packing can be below: the most bytes alive at once.
    pub lower_bound_bytes: u64,
    /// Which heuristic won.
    pub heuristic: &'static str,
}

impl Packing {
    /// Bytes of all buffers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.buffers.iter().sum()
    }
}

/// Seeded attempts after the fixed heuristics, at most; the search stops at the lower bound.
const ATTEMPTS: usize = 2000;
/// Bounds the attempts' time: pairs of items looked at in all of them.
const PAIRS: usize = 40_000_000;

/// The search moves items of at least this part of the largest one.
const SMALL: u64 = 32;
const SEARCH: &str = "search";

/// Places items in buffers of at most `capacity` bytes, with as few bytes as the heuristics find.
/// An item that is larger than `capacity` gets a buffer of its own size; the caller's limits refuse it.
#[must_use]
pub fn pack(items: &[Item], capacity: u64) -> Packing {
    let live = live_bytes(items);
    let lower_bound_bytes = live.iter().copied().max().unwrap_or(0);
    let facts: Vec<Facts> = items
        .iter()
        .map(|&(bytes, lifetime)| Facts {
            bytes,
            lifetime,
            crowd: live[lifetime.first..=lifetime.last]
                .iter()
                .copied()
                .max()
                .unwrap_or(0),
        })
        .collect();
    let mut best = Attempt::empty();
    let mut best_order: Vec<usize> = Vec::new();
    for (heuristic, key) in HEURISTICS {
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|&i| (key(&facts[i]), i));
        let attempt = Attempt::run(items, &order, capacity, heuristic);
        if best.places.is_empty() || attempt.bytes() < best.bytes() {
            (best, best_order) = (attempt, order);
        }
        if best.bytes() == lower_bound_bytes {
            break;
        }
    }
    search(items, capacity, lower_bound_bytes, &mut best, &best_order);
    Packing {
        places: best.places,
        buffers: best.buffers,
        lower_bound_bytes,
        heuristic: best.heuristic,
    }
}

/// Tries to improve a packing by placing what now lies at a buffer's end earlier. Only large items move: the small ones, placed after
/// them, nearly always find a gap, and there are many of them.
fn search(
    items: &[Item],
    capacity: u64,
    lower_bound_bytes: u64,
    best: &mut Attempt,
    order: &[usize],
) {
    let largest = items.iter().map(|item| item.0).max().unwrap_or(0);
    let (mut order, small): (Vec<usize>, Vec<usize>) = order
        .iter()
        .partition(|&&item| items[item].0 >= largest / SMALL);
    let attempts = ATTEMPTS.min(PAIRS / (order.len() * order.len()).max(1));
    let mut random = SplitMix(0x5eed);
    let mut current = Attempt::run(items, &order, capacity, SEARCH);
    for _ in 0..attempts {
        if best.bytes() == lower_bound_bytes {
            return;
        }
        let at_the_end = |&position: &usize| {
            let item: usize = order[position];
            let place = current.places[item];
            place.offset + items[item].0 == current.buffers[place.buffer]
        };
        let culprits: Vec<usize> = (0..order.len()).filter(at_the_end).collect();
        let mut next = order.clone();
        advance(
            &mut next,
            culprits[random.below(culprits.len())],
            &mut random,
        );
        // now and then other items, so that the search leaves a plateau
        while random.below(2) == 0 {
            let from = random.below(next.len());
            advance(&mut next, from, &mut random);
        }
        let attempt = Attempt::run(items, &next, capacity, SEARCH);
        if attempt.bytes() < best.bytes() {
            let whole = Attempt::run(items, &[&next[..], &small[..]].concat(), capacity, SEARCH);
            if whole.bytes() < best.bytes() {
                *best = whole;
            }
        }
        // an equal result moves the search on, too
        if attempt.bytes() <= current.bytes() {
            (current, order) = (attempt, next);
        }
    }
}

/// Moves the item at a position to a random place before it: what is placed early is placed well.
fn advance(order: &mut Vec<usize>, from: usize, random: &mut SplitMix) {
    let item = order.remove(from);
    order.insert(random.below(from + 1), item);
}

/// What the heuristics order by.
struct Facts {
    bytes: u64,
    lifetime: Lifetime,
    /// Most bytes alive at once during the lifetime.
    crowd: u64,
}

type Key = fn(&Facts) -> [u64; 3];

/// Orders in which items are placed, by ascending key.
const HEURISTICS: [(&str, Key); 8] = [
    ("by_size", |x| {
        [u64::MAX - x.bytes, x.lifetime.first as u64, 0]
    }),
    ("in_order", |x| {
        [x.lifetime.first as u64, u64::MAX - x.bytes, 0]
    }),
    ("by_duration", |x| {
        [u64::MAX - duration(x.lifetime), u64::MAX - x.bytes, 0]
    }),
    ("by_area", |x| {
        [u64::MAX - x.bytes * duration(x.lifetime), 0, 0]
    }),
    ("by_end", |x| {
        [u64::MAX - x.lifetime.last as u64, u64::MAX - x.bytes, 0]
    }),
    ("by_crowd_and_size", |x| {
        [u64::MAX - x.crowd, u64::MAX - x.bytes, 0]
    }),
    ("by_crowd_and_duration", |x| {
        [
            u64::MAX - x.crowd,
            u64::MAX - duration(x.lifetime),
            u64::MAX - x.bytes,
        ]
    }),
    ("by_crowd_in_order", |x| {
        [
            u64::MAX - x.crowd,
            x.lifetime.first as u64,
            u64::MAX - x.bytes,
        ]
    }),
];

const fn duration(lifetime: Lifetime) -> u64 {
    (lifetime.last - lifetime.first + 1) as u64
}

#[derive(Clone)]
struct Attempt {
    places: Vec<Offset>,
    buffers: Vec<u64>,
    heuristic: &'static str,
}

impl Attempt {
    const fn empty() -> Self {
        Self {
            places: Vec::new(),
            buffers: Vec::new(),
            heuristic: "none",
        }
    }

    fn bytes(&self) -> u64 {
        self.buffers.iter().sum()
    }

    /// Places the items in the given order, each in the smallest gap that is free for its whole lifetime.
    fn run(items: &[Item], order: &[usize], capacity: u64, heuristic: &'static str) -> Self {
        let mut attempt = Self {
            places: vec![
                Offset {
                    buffer: 0,
                    offset: 0
                };
                items.len()
            ],
            buffers: Vec::new(),
            heuristic,
        };
        // placed items by offset, one list a buffer
        let mut placed: Vec<Vec<(u64, usize)>> = Vec::new();
        for &item in order {
            let (bytes, lifetime) = items[item];
            let choice = placed
                .iter()
                .enumerate()
                .filter_map(|(buffer, list)| {
                    let offset = best_gap(items, list, bytes, lifetime, capacity)?;
                    let growth = (offset + bytes).saturating_sub(attempt.buffers[buffer]);
                    Some((growth, buffer, offset))
                })
                .min();
            let (buffer, offset) = match choice {
                Some((_, buffer, offset)) => (buffer, offset),
                None => {
                    placed.push(Vec::new());
                    attempt.buffers.push(0);
                    (placed.len() - 1, 0)
                }
            };
            attempt.places[item] = Offset { buffer, offset };
            attempt.buffers[buffer] = attempt.buffers[buffer].max(offset + bytes);
            let list = &mut placed[buffer];
            let at = list.partition_point(|&entry| entry < (offset, item));
            list.insert(at, (offset, item));
        }
        attempt
    }
}

/// The start of the smallest gap between items alive at the same time, the one before the first included; else the end of the last.
fn best_gap(
    items: &[Item],
    placed: &[(u64, usize)],
    bytes: u64,
    lifetime: Lifetime,
    capacity: u64,
) -> Option<u64> {
    let mut end = 0;
    let mut best: Option<(u64, u64)> = None;
    for &(offset, other) in placed {
        let (other_bytes, other_lifetime) = items[other];
        if !lifetime.overlaps(other_lifetime) {
            continue;
        }
        if offset > end {
            let gap = offset - end;
            if gap >= bytes && best.is_none_or(|(smallest, _)| gap < smallest) {
                best = Some((gap, end));
            }
        }
        end = end.max(offset + other_bytes);
    }
    match best {
        Some((_, start)) => Some(start),
        None => (end + bytes <= capacity).then_some(end),
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, the same everywhere.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}
