//! The words after `-o`, as `mount` and `/etc/fstab` have them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use linux::MountHow;
use restow::ImageAt;

use crate::options::SourceArgs;
use crate::text;

/// Bytes of decoded content that are kept unless `cache=` says otherwise.
const CACHE_BYTES: usize = 64 << 20;
/// More sessions than this do not help: each has buffers of its own.
const THREADS_MAX: usize = 64;

/// Words that mount(8), fstab and libfuse's programs add, and that change nothing here: the mount
/// is read-only and checks permissions in any case, and no file is ever accessed in a way that
/// would be recorded.
const WITHOUT_EFFECT: &[&str] = &[
    "_netdev",
    "async",
    "atime",
    "auto",
    "default_permissions",
    "defaults",
    "diratime",
    "dirsync",
    "exec",
    "group",
    "lazytime",
    "noatime",
    "noauto",
    "nodev",
    "nodiratime",
    "nofail",
    "nolazytime",
    "norelatime",
    "nostrictatime",
    "nosuid",
    "nouser",
    "owner",
    "relatime",
    "ro",
    "rw",
    "strictatime",
    "sync",
    "user",
    "users",
];

/// The meaning of the words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountOptions {
    pub(super) offset: Option<u64>,
    pub(super) subdir: Option<Vec<u8>>,
    pub(super) subvolume: Option<OsString>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) umask: u16,
    pub(super) timeout: Option<Duration>,
    pub(super) allow_other: bool,
    pub(super) allow_root: bool,
    pub(super) cache_bytes: usize,
    pub(super) max_threads: Option<usize>,
    pub(super) notify_pipe: Option<PathBuf>,
    pub(super) fsname: Option<Vec<u8>>,
    pub(super) auto_unmount: bool,
    pub(super) ignore_checksums: bool,
    pub(super) how: MountHow,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            offset: None,
            subdir: None,
            subvolume: None,
            uid: None,
            gid: None,
            umask: 0,
            timeout: None,
            allow_other: false,
            allow_root: false,
            cache_bytes: CACHE_BYTES,
            max_threads: None,
            notify_pipe: None,
            fsname: None,
            auto_unmount: false,
            ignore_checksums: false,
            how: MountHow::default(),
        }
    }
}

impl MountOptions {
    /// The options in lists of words, which commas separate; a backslash makes a comma part of a
    /// word.
    ///
    /// # Errors
    /// A word is unknown, or its value is not valid.
    pub(super) fn parse(lists: &[OsString]) -> Result<MountOptions> {
        let mut options = MountOptions::default();
        for list in lists {
            for word in words(list.as_bytes()) {
                let shown = || format!("option `{}`", text::of_name(&word));
                options.take_in(&word).with_context(shown)?;
            }
        }
        if options.allow_other && options.allow_root {
            bail!("options allow_other and allow_root exclude each other");
        }
        Ok(options)
    }

    fn take_in(&mut self, word: &[u8]) -> Result<()> {
        let mut parts = word.splitn(2, |&byte| byte == b'=');
        let name = parts.next().unwrap_or_default();
        let value = parts.next();
        let Ok(name) = str::from_utf8(name) else {
            bail!("unknown");
        };
        let is_comment = name.starts_with("x-") || name.starts_with("X-") || name == "comment";
        if is_comment || (value.is_none() && WITHOUT_EFFECT.contains(&name)) {
            // The last of several counts.
            match name {
                "exec" => self.how.noexec = false,
                "nodev" => self.how.dev = false,
                "nosuid" => self.how.suid = false,
                _ => {}
            }
            return Ok(());
        }
        let needed = || value.context("needs a value, as in NAME=VALUE");
        match name {
            "offset" => self.offset = Some(number(needed()?)?),
            "subdir" => self.subdir = Some(needed()?.to_vec()),
            "subvol" => {
                // A path that has nothing but digits is not a number here.
                let mut path = needed()?.to_vec();
                if !path.starts_with(b"/") {
                    path.insert(0, b'/');
                }
                self.subvolume = Some(OsString::from_vec(path));
            }
            "subvolid" => {
                number::<u64>(needed()?)?;
                self.subvolume = Some(OsString::from_vec(needed()?.to_vec()));
            }
            "uid" => self.uid = Some(number(needed()?)?),
            "gid" => self.gid = Some(number(needed()?)?),
            "umask" => self.umask = mode(needed()?)?,
            "timeout" => {
                let seconds: u32 = number(needed()?)?;
                self.timeout = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
            }
            "cache" => self.cache_bytes = bytes(needed()?)?,
            "max_threads" => {
                let threads: usize = number(needed()?)?;
                if threads == 0 || threads > THREADS_MAX {
                    bail!("must be 1 to {THREADS_MAX}");
                }
                self.max_threads = Some(threads);
            }
            "notify_pipe" => {
                let path = OsString::from_vec(needed()?.to_vec());
                self.notify_pipe = Some(path.into());
            }
            "fsname" => self.fsname = Some(needed()?.to_vec()),
            "subtype" => {} // always `restow`
            _ if value.is_some() => bail!("unknown"),
            "allow_other" => self.allow_other = true,
            "allow_root" => self.allow_root = true,
            "auto_unmount" => self.auto_unmount = true,
            "ignore_checksums" => self.ignore_checksums = true,
            "dev" => self.how.dev = true,
            "suid" => self.how.suid = true,
            "noexec" => self.how.noexec = true,
            _ => bail!("unknown; `restow mount --help` lists the options"),
        }
        Ok(())
    }

    /// The options for opening a source: the arguments and those that the words add.
    ///
    /// # Errors
    /// Both say something about the same thing.
    pub(super) fn source_args(&self, args: &SourceArgs) -> Result<SourceArgs> {
        let mut args = args.clone();
        if let Some(offset) = self.offset
            && args.file.image_at.replace(ImageAt::Byte(offset)).is_some()
        {
            bail!("--image-at and option `offset` exclude each other");
        }
        if let Some(subvolume) = &self.subvolume
            && args.subvolume.replace(subvolume.clone()).is_some()
        {
            bail!("--subvolume and options `subvol` and `subvolid` exclude each other");
        }
        args.ignore_checksums = self.ignore_checksums;
        Ok(args)
    }
}

/// The words of a list.
fn words(list: &[u8]) -> Vec<Vec<u8>> {
    let mut words = vec![Vec::new()];
    let mut bytes = list.iter();
    while let Some(&byte) = bytes.next() {
        let word = words.last_mut().expect("there is one from the start");
        match byte {
            b'\\' => word.extend(bytes.next()),
            b',' => words.push(Vec::new()),
            byte => word.push(byte),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn number<T: std::str::FromStr>(value: &[u8]) -> Result<T> {
    let digits = str::from_utf8(value).ok();
    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse().ok());
    number.context("not a valid number")
}

fn mode(value: &[u8]) -> Result<u16> {
    let digits = str::from_utf8(value).ok();
    let mode = digits.and_then(|digits| u16::from_str_radix(digits, 8).ok());
    mode.filter(|mode| *mode <= 0o777)
        .context("not an octal mode of at most 777")
}

/// A number of bytes, with `k`, `M` or `G` for powers of 1024.
fn bytes(value: &[u8]) -> Result<usize> {
    let (digits, shift) = match value.split_last() {
        Some((b'k' | b'K', digits)) => (digits, 10),
        Some((b'm' | b'M', digits)) => (digits, 20),
        Some((b'g' | b'G', digits)) => (digits, 30),
        _ => (value, 0),
    };
    let number: usize = number(digits)?;
    number
        .checked_mul(1 << shift)
        .context("not a valid number of bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<MountOptions> {
        MountOptions::parse(&[list.into()])
    }

    #[test]
    fn words_are_understood() {
        let options = parse("rw,dev,suid,noauto,x-systemd.automount,x-a=b,_netdev,user,noatime");
        let how = MountHow {
            suid: true,
            dev: true,
            noexec: false,
        };
        let expected = MountOptions {
            how,
            ..MountOptions::default()
        };
        assert_eq!(options.unwrap(), expected);
        let options = parse("offset=4096,subdir=a\\,b/c,uid=1,gid=2,umask=027,timeout=3").unwrap();
        assert_eq!(options.offset, Some(4096));
        assert_eq!(options.subdir.as_deref(), Some(&b"a,b/c"[..]));
        assert_eq!(
            (options.uid, options.gid, options.umask),
            (Some(1), Some(2), 0o027)
        );
        assert_eq!(options.timeout, Some(Duration::from_secs(3)));
        let options = parse("cache=2M,max_threads=3,fsname=a=b,subvol=257,timeout=0").unwrap();
        assert_eq!(
            (options.cache_bytes, options.max_threads),
            (2 << 20, Some(3))
        );
        assert_eq!(options.fsname.as_deref(), Some(&b"a=b"[..]));
        assert_eq!(options.subvolume, Some("/257".into()));
        assert_eq!(options.timeout, None);
        assert_eq!(parse("subvolid=257").unwrap().subvolume, Some("257".into()));
        let options = parse("suid,nosuid,dev,nodev,noexec,exec").unwrap();
        assert_eq!(options.how, MountHow::default());
    }

    #[test]
    fn unknown_words_are_refused_by_name() {
        for (list, error) in [
            ("ro,frobnicate", "option `frobnicate`"),
            ("frob=1", "option `frob=1`"),
            ("offset", "option `offset`"),
            ("offset=-1", "option `offset=-1`"),
            ("umask=9", "option `umask=9`"),
            ("umask=7777", "option `umask=7777`"),
            ("subvolid=home", "option `subvolid=home`"),
            ("cache=1T", "option `cache=1T`"),
            ("max_threads=0", "option `max_threads=0`"),
            ("allow_other=1", "option `allow_other=1`"),
            (
                "allow_other,allow_root",
                "options allow_other and allow_root exclude each other",
            ),
        ] {
            assert_eq!(parse(list).unwrap_err().to_string(), error);
        }
    }
}
