//! From when to when each slot of a program holds something.

use super::program::{Keep, Program};

/// A slot's first and last dispatch, both included, counted over `schedule`, `image` and `step` together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// The dispatch that writes it first.
    pub first: usize,
    /// The last dispatch that uses it.
    pub last: usize,
}

impl Lifetime {
    /// Whether both are alive at some dispatch.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The lifetime of each slot, from the first to the last use of any of its parts; none for parts and for those that are kept.
#[must_use]
pub fn lifetimes(program: &Program) -> Vec<Option<Lifetime>> {
    let mut list: Vec<Option<Lifetime>> = vec![None; program.slots.len()];
    for (index, dispatch) in program.dispatches().enumerate() {
        for (slot, ..) in dispatch.arena() {
            if program.slot(slot).keep != Keep::No {
                continue;
            }
            let slot = program.owner(slot);
            let lifetime = list[slot.0].get_or_insert(Lifetime {
                first: index,
                last: index,
            });
            lifetime.last = index;
        }
    }
    list
}

/// Bytes alive at each dispatch, without what is kept.
#[must_use]
pub fn live_bytes(items: &[(u64, Lifetime)]) -> Vec<u64> {
    let end = items.iter().map(|(_, lifetime)| lifetime.last + 1).max();
    let mut live = vec![0; end.unwrap_or(0)];
    for &(bytes, lifetime) in items {
        for sum in &mut live[lifetime.first..=lifetime.last] {
            *sum += bytes;
        }
    }
    live
}
