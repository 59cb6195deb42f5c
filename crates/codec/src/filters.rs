//! Filters for machine code, which SquashFS images record.

/// A set of filters that make machine code easier to compress, as a bit mask in SquashFS encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filters(pub u32);

impl Filters {
    /// x86 and x86-64.
    pub const X86: Filters = Filters(1);
    /// PowerPC, big-endian.
    pub const POWERPC: Filters = Filters(2);
    /// Itanium.
    pub const IA64: Filters = Filters(4);
    /// ARM.
    pub const ARM: Filters = Filters(8);
    /// ARM Thumb.
    pub const ARM_THUMB: Filters = Filters(0x10);
    /// SPARC.
    pub const SPARC: Filters = Filters(0x20);
    /// ARM64.
    pub const ARM64: Filters = Filters(0x40);
    /// RISC-V.
    pub const RISCV: Filters = Filters(0x80);
    /// All filters.
    pub const ALL: Filters = Filters(0xff);

    /// The names as in the options of `mksquashfs`, in bit order.
    pub const NAMES: [&'static str; 8] = [
        "x86", "powerpc", "ia64", "arm", "armthumb", "sparc", "arm64", "riscv",
    ];
}
