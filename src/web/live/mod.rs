//! Live updates: one thread renders what viewers have open, and sends what changed.
