// Whether the operating system lets this process use AMX's tiles.
#pragma once

namespace pagewheel {

/// Asks Linux for it (arch_prctl) at the first call, and remembers the answer. It holds for all
/// threads of the process, those that exist and those to come, and for children by fork(), whose
/// tiles are empty at first; a program that exec() starts asks anew.
///
/// To be asked only by who will use tiles: signal frames grow with it, and Linux refuses where a
/// thread's alternate signal stack is too small for that.
bool tiles_are_permitted();

}  // namespace pagewheel
