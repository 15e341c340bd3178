//! The same question as the planner's proof, answered block by block: memory is an array of 256-byte blocks, each with the name of
//! what was written to it last and which block of it that is.

use latent_canvas::engine::plan::{ArenaLayout, Dispatch, Keep, Program, SlotId, ValueId};

const BLOCK: u64 = 256;

/// Value, pass, and the block's first byte in the value.
type Tag = (Option<ValueId>, usize, u64);

struct Blocks<'a> {
    program: &'a Program,
    arena: &'a ArenaLayout,
    tags: Vec<Vec<Option<Tag>>>,
}

impl Blocks<'_> {
    fn of(&self, slot: SlotId, pass: usize) -> (usize, std::ops::Range<usize>) {
        let place = self.arena.place(slot, pass);
        let end = place.offset + self.program.slot(slot).bytes;
        let blocks = (place.offset / BLOCK) as usize..end.div_ceil(BLOCK) as usize;
        (place.buffer, blocks)
    }

    fn write(&mut self, slot: SlotId, pass: usize, value: Option<ValueId>) {
        let (buffer, blocks) = self.of(slot, pass);
        let first = self.program.slot(slot).value_at();
        for (tag, block) in self.tags[buffer][blocks].iter_mut().zip(0..) {
            *tag = Some((value, pass, first + block * BLOCK));
        }
    }

    fn holds(&self, slot: SlotId, pass: usize, value: ValueId) -> bool {
        let shared = self.program.slot(slot).keep == Keep::Shared;
        let (buffer, blocks) = self.of(slot, pass);
        let first = self.program.slot(slot).value_at();
        self.tags[buffer][blocks]
            .iter()
            .zip(0..)
            .all(|(tag, block)| {
                let at = first + block * BLOCK;
                tag.is_some_and(|(v, p, a)| v == Some(value) && (p == pass || shared) && a == at)
            })
    }

    fn run(&mut self, dispatch: &Dispatch, pass: usize) -> Result<(), String> {
        let operands: Vec<_> = dispatch.arena().collect();
        for (i, &(a, ..)) in operands.iter().enumerate() {
            for &(b, ..) in &operands[..i] {
                let ((buffer_a, a), (buffer_b, b)) = (self.of(a, pass), self.of(b, pass));
                if buffer_a == buffer_b && a.clone().any(|block| b.contains(&block)) {
                    return Err(format!("{} binds a block twice", dispatch.module));
                }
            }
        }
        for &(slot, reads, _) in &operands {
            if reads.is_some_and(|value| !self.holds(slot, pass, value)) {
                return Err(format!("{} reads what is gone", dispatch.module));
            }
        }
        for &(slot, reads, writes) in &operands {
            if writes.is_some() || reads.is_none() {
                self.write(slot, pass, writes);
            }
        }
        Ok(())
    }
}

/// Runs a program block by block; the error says which module reads what is not there.
pub(crate) fn check(program: &Program, arena: &ArenaLayout) -> Result<(), String> {
    let mut blocks = Blocks {
        program,
        arena,
        tags: arena
            .buffers
            .iter()
            .map(|&bytes| vec![None; bytes.div_ceil(BLOCK) as usize])
            .collect(),
    };
    for port in &program.inputs {
        for pass in 0..arena.passes {
            blocks.write(port.slot, pass, Some(port.value));
        }
    }
    let run = |blocks: &mut Blocks, list: &[Dispatch], pass: usize| {
        list.iter().try_for_each(|call| blocks.run(call, pass))
    };
    run(&mut blocks, &program.schedule, 0)?;
    for pass in 0..arena.passes {
        run(&mut blocks, &program.image, pass)?;
    }
    for _step in 0..2 {
        for pass in 0..arena.passes {
            run(&mut blocks, &program.step, pass)?;
        }
    }
    for port in &program.outputs {
        for pass in 0..arena.passes {
            if !blocks.holds(port.slot, pass, port.value) {
                return Err(format!("the output {} is gone", port.name));
            }
        }
    }
    Ok(())
}
