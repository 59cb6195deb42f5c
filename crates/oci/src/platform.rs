//! Platforms: the operating system and the processor that an image is for.

use std::fmt;
use std::str::FromStr;

use tree::json::Json;

/// The platform of an image, in the words of Go (`GOOS`, `GOARCH`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Platform {
    /// The operating system, such as `linux`.
    pub os: String,
    /// The architecture, such as `amd64`.
    pub architecture: String,
    /// The variant of the architecture, such as `v8`; empty if there is none.
    pub variant: String,
}

impl Platform {
    /// The platform of this machine, without a variant.
    pub fn of_machine() -> Platform {
        let known = [
            (cfg!(target_arch = "x86_64"), "amd64"),
            (cfg!(target_arch = "x86"), "386"),
            (cfg!(target_arch = "aarch64"), "arm64"),
            (cfg!(target_arch = "arm"), "arm"),
            (cfg!(target_arch = "riscv64"), "riscv64"),
            (cfg!(target_arch = "s390x"), "s390x"),
            (cfg!(target_arch = "loongarch64"), "loong64"),
            (
                cfg!(all(target_arch = "powerpc64", target_endian = "little")),
                "ppc64le",
            ),
        ];
        let architecture = known.iter().find(|(is_it, _)| *is_it);
        let architecture = architecture.map_or("unknown", |(_, name)| name);
        Platform {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: String::new(),
        }
    }

    /// The platform in a descriptor or an image's configuration, which have it in the same form.
    pub(crate) fn of_json(value: &Json) -> Option<Platform> {
        Some(Platform {
            os: value.text("os")?.to_owned(),
            architecture: value.text("architecture")?.to_owned(),
            variant: value.text("variant").unwrap_or_default().to_owned(),
        })
    }

    /// Whether an image for this platform is one for `wanted`: without a variant, any is.
    pub fn is(&self, wanted: &Platform) -> bool {
        (&self.os, &self.architecture) == (&wanted.os, &wanted.architecture)
            && (wanted.variant.is_empty() || self.variant == wanted.variant)
    }
}

/// `OS/ARCH` or `OS/ARCH/VARIANT`.
impl FromStr for Platform {
    type Err = &'static str;

    fn from_str(words: &str) -> Result<Platform, &'static str> {
        let parts: Vec<&str> = words.split('/').collect();
        let (os, architecture, variant) = match parts[..] {
            [os, architecture] => (os, architecture, ""),
            [os, architecture, variant] if !variant.is_empty() => (os, architecture, variant),
            _ => return Err("must be OS/ARCH or OS/ARCH/VARIANT, as in linux/arm64"),
        };
        if os.is_empty() || architecture.is_empty() {
            return Err("a platform has an operating system and an architecture");
        }
        Ok(Platform {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.to_owned(),
        })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        if !self.variant.is_empty() {
            write!(f, "/{}", self.variant)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_have_two_or_three_words() {
        let arm: Platform = "linux/arm64/v8".parse().unwrap();
        assert_eq!(arm.to_string(), "linux/arm64/v8");
        assert!(arm.is(&"linux/arm64".parse().unwrap()) && arm.is(&arm));
        assert!(!arm.is(&"linux/arm64/v9".parse().unwrap()));
        assert!(!arm.is(&"linux/arm".parse().unwrap()));
        for bad in ["", "linux", "/arm", "linux/", "a/b/", "a/b/c/d"] {
            assert!(bad.parse::<Platform>().is_err(), "{bad}");
        }
    }
}
