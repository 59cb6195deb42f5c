//! The architectures that the modules are built for.

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arch {
    Amd64,
    /// Built by a compiler for it, and booted as a machine of its own.
    Arm64,
}

impl Arch {
    /// As Debian calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// A program that compiles or reads code of it.
    pub(super) fn tool(self, name: &str) -> String {
        match self {
            Self::Amd64 => name.to_owned(),
            Self::Arm64 => format!("aarch64-linux-gnu-{name}"),
        }
    }

    /// Words for `make`.
    pub(super) fn make_words(self) -> &'static [&'static str] {
        match self {
            Self::Amd64 => &[],
            Self::Arm64 => &["ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-"],
        }
    }

    /// The program that is a machine of it.
    pub(super) fn qemu(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// That machine's processor, and the console of Linux on it.
    pub(super) fn machine(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::Amd64 => (&["-cpu", "max"], "ttyS0"),
            // Pointers are signed by a cheaper function than that of the architecture.
            Self::Arm64 => (
                &["-machine", "virt", "-cpu", "max,pauth-impdef=on"],
                "ttyAMA0",
            ),
        }
    }
}
