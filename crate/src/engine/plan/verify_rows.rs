//! Whether the parts of values that a call binds are the rows that it computes with.

use super::program::{Dispatch, Place, Program};
use crate::kernels::{Kernel, Operand, Role};

/// The rows of a call's operands belong together.
pub(super) fn rows_agree(program: &Program, dispatch: &Dispatch) -> Result<(), &'static str> {
    let operands = dispatch.kernel.operands();
    let bound = Bound {
        program,
        dispatch,
        operands: &operands,
    };
    match dispatch.kernel {
        Kernel::Conv2d(args) => {
            let Some(strip) = args.strip else {
                return bound.are_whole();
            };
            let needed = args.stored_rows(strip.first..strip.first + strip.rows);
            if strip.input_first > needed.start || strip.input_first + strip.input_rows < needed.end
            {
                return Err("a row around the strip is missing");
            }
            let [_, width] = args.output_size();
            let input = args.input.bytes(args.width * args.channels_in);
            let output = args.output.bytes(width * args.channels_out);
            bound.begins(Role::Input, input * strip.input_first as u64)?;
            bound.begins(Role::Residual, output * strip.first as u64)?;
            bound.begins(Role::Output, output * strip.first as u64)
        }
        Kernel::Gemm(args) => bound.begin_alike(args.m),
        Kernel::GroupApply(args) => bound.begin_alike(args.positions),
        Kernel::GroupStatistics(args) => {
            let input = args.input.bytes(args.channels);
            let slice = args.output_bytes() / args.slices().max(1) as u64;
            let Some(first) = bound.value_at(Role::Input) else {
                return Ok(());
            };
            let position = first / input;
            if position * input != first || !position.is_multiple_of(args.slice_positions as u64) {
                return Err("the positions do not begin with a slice");
            }
            bound.begins(Role::Output, position / args.slice_positions as u64 * slice)
        }
        _ => bound.are_whole(),
    }
}

struct Bound<'a> {
    program: &'a Program,
    dispatch: &'a Dispatch,
    operands: &'a [Operand],
}

impl Bound<'_> {
    /// Which byte of its value an operand begins with; nothing where there is no such operand.
    fn value_at(&self, role: Role) -> Option<u64> {
        let at = self
            .operands
            .iter()
            .position(|operand| operand.role == role)?;
        match self.dispatch.operands.get(at)? {
            Place::Arena { slot, .. } => Some(self.program.slot(*slot).value_at()),
            Place::Weight(_) | Place::Step => None,
        }
    }

    fn begins(&self, role: Role, at: u64) -> Result<(), &'static str> {
        match self.value_at(role) {
            Some(first) if first != at => Err("an operand begins with another row"),
            _ => Ok(()),
        }
    }

    /// All activations begin with the same of `positions` positions.
    fn begin_alike(&self, positions: usize) -> Result<(), &'static str> {
        let activations = [Role::Input, Role::SecondInput, Role::Residual, Role::Output];
        let mut firsts = activations.into_iter().filter_map(|role| {
            let at = self
                .operands
                .iter()
                .position(|operand| operand.role == role)?;
            let bytes = self.operands.get(at)?.bytes / positions.max(1) as u64;
            Some(self.value_at(role)? / bytes.max(1))
        });
        let first = firsts.next();
        if firsts.all(|other| Some(other) == first) {
            Ok(())
        } else {
            Err("its operands begin with different positions")
        }
    }

    /// No operand but a kernel's own memory is a part of a value.
    fn are_whole(&self) -> Result<(), &'static str> {
        let parts = self.dispatch.arena().any(|(slot, reads, writes)| {
            let is_value = reads.is_some() || writes.is_some();
            is_value && self.program.slot(slot).value_at() > 0
        });
        if parts {
            return Err("it works on whole values");
        }
        Ok(())
    }
}
