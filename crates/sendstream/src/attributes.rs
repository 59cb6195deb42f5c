//! Parsing and emitting commands, which consist of attributes.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Error, Result, Time, to_u64};

use crate::command::{self, Command, since};
use crate::encoded::{self, EncodedWrite};
use crate::raw::{COMMAND_HEADER_BYTES, Version, attribute, command as number, command_header};

/// The largest offset in a file, `MAX_LFS_FILESIZE`.
const FILE_BYTES_MAX: u64 = i64::MAX.cast_unsigned();
/// A time has fewer nanoseconds than this.
const NANOSECONDS_END: u32 = 1_000_000_000;

const UNKNOWN: &str = "send stream has an unknown command";

/// The attributes of a command by their number, in any order.
struct Attributes<'a> {
    values: [Option<&'a [u8]>; attribute::COUNT],
    /// The offset of the command's header in the stream, for errors.
    at: u64,
}

impl<'a> Attributes<'a> {
    /// # Errors
    /// An attribute is unknown, given twice, or reaches beyond the payload.
    fn parse(version: Version, payload: &'a [u8], at: u64) -> Result<Self> {
        let mut values = [None; attribute::COUNT];
        let mut rest = payload;
        while !rest.is_empty() {
            let parsed = payload.len().saturating_sub(rest.len());
            let here = at.saturating_add(to_u64(COMMAND_HEADER_BYTES.saturating_add(parsed)));
            let wrong = |(what, got)| Error::corrupt(what, here, got);
            let (kind, value) = split(version, &mut rest).map_err(wrong)?;
            match values.get_mut(usize::from(kind)) {
                Some(slot) if kind != 0 && slot.is_none() => *slot = Some(value),
                Some(Some(_)) => return Err(wrong(("attribute occurs twice", kind.into()))),
                _ => return Err(wrong(("attribute has an unknown type", kind.into()))),
            }
        }
        Ok(Attributes { values, at })
    }

    fn wrong(&self, what: &'static str, got: u64) -> Error {
        Error::corrupt(what, self.at, got)
    }

    fn bytes(&mut self, kind: u16) -> Result<&'a [u8]> {
        let missing = "attribute is missing from its command";
        let value = self.values.get_mut(usize::from(kind));
        let value = value.and_then(Option::take);
        value.ok_or_else(|| self.wrong(missing, kind.into()))
    }

    fn array<const N: usize>(&mut self, kind: u16) -> Result<[u8; N]> {
        let array = self.bytes(kind)?.try_into();
        let what = "attribute has the wrong length for its type";
        array.map_err(|_| self.wrong(what, kind.into()))
    }

    /// The result of `read` for an attribute, or `None` if the command does not have it.
    fn optional<T>(
        &mut self,
        kind: u16,
        read: impl FnOnce(&mut Self, u16) -> Result<T>,
    ) -> Result<Option<T>> {
        let value = self.values.get(usize::from(kind));
        let is_there = value.is_some_and(Option::is_some);
        is_there.then(|| read(self, kind)).transpose()
    }

    fn uuid(&mut self, kind: u16) -> Result<[u8; 16]> {
        self.array(kind)
    }

    fn u64(&mut self, kind: u16) -> Result<u64> {
        self.array(kind).map(u64::from_le_bytes)
    }

    fn optional_u64(&mut self, kind: u16) -> Result<Option<u64>> {
        self.optional(kind, Self::u64)
    }

    fn u32(&mut self, kind: u16) -> Result<u32> {
        self.array(kind).map(u32::from_le_bytes)
    }

    fn u8(&mut self, kind: u16) -> Result<u8> {
        self.array(kind).map(u8::from_le_bytes)
    }

    fn time(&mut self, kind: u16) -> Result<Time> {
        let [seconds @ .., a, b, c, d] = self.array::<12>(kind)?;
        let nanoseconds = u32::from_le_bytes([a, b, c, d]);
        if nanoseconds >= NANOSECONDS_END {
            let what = "time has a second or more of nanoseconds";
            return Err(self.wrong(what, nanoseconds.into()));
        }
        Ok(Time {
            seconds: i64::from_le_bytes(seconds),
            nanoseconds,
        })
    }

    fn optional_time(&mut self, kind: u16) -> Result<Option<Time>> {
        self.optional(kind, Self::time)
    }

    fn encoded_write(&mut self) -> Result<EncodedWrite<'a>> {
        // Absent means the same as 0.
        let compression = self.optional(attribute::COMPRESSION, Self::u32)?;
        let compression = compression.unwrap_or(0);
        let encryption = self.optional(attribute::ENCRYPTION, Self::u32)?;
        if encryption.is_some_and(|it| it != 0) {
            return Err(Error::Unsupported("encryption in a send stream"));
        }
        let algorithm = encoded::algorithm(compression);
        let what = "encoded write has an unknown compression";
        let algorithm = algorithm.ok_or_else(|| self.wrong(what, compression.into()))?;
        let write = EncodedWrite {
            path: self.bytes(attribute::PATH)?,
            file_offset: self.u64(attribute::FILE_OFFSET)?,
            unencoded_file_len: self.u64(attribute::UNENCODED_FILE_LEN)?,
            unencoded_len: self.u64(attribute::UNENCODED_LEN)?,
            unencoded_offset: self.u64(attribute::UNENCODED_OFFSET)?,
            compression: algorithm,
            encryption,
            data: self.bytes(attribute::DATA)?,
        };
        match write.fault() {
            Some((what, got)) => Err(self.wrong(what, got)),
            None => Ok(write),
        }
    }
}

/// Takes the first attribute of `rest`: its type and its value. An error is what is wrong, and what
/// was found.
pub(crate) fn split<'a>(
    version: Version,
    rest: &mut &'a [u8],
) -> Result<(u16, &'a [u8]), (&'static str, u64)> {
    let found = to_u64(rest.len());
    let Some((kind, after)) = rest.split_first_chunk() else {
        return Err(("attribute's type is cut off", found));
    };
    let kind = u16::from_le_bytes(*kind);
    if kind == attribute::DATA && version.has_long_data() {
        *rest = &[];
        return Ok((kind, after));
    }
    let Some((len, after)) = after.split_first_chunk() else {
        return Err(("attribute's length is cut off", found));
    };
    let len = u16::from_le_bytes(*len);
    let Some((value, after)) = after.split_at_checked(len.into()) else {
        return Err(("attribute reaches beyond its command", len.into()));
    };
    *rest = after;
    Ok((kind, value))
}

/// Parses a command.
///
/// # Errors
/// The command is not one of this version, an attribute is missing or has no place in it, or its
/// numbers are impossible.
pub(crate) fn parse(
    version: Version,
    command: u16,
    payload: &[u8],
    at: u64,
) -> Result<Command<'_>> {
    let wrong = |what| Error::corrupt(what, at, command.into());
    if command::name(command).is_none() {
        return Err(wrong(UNKNOWN));
    }
    if since(command) > version {
        return Err(wrong("send stream has a command of a later version"));
    }
    let mut from = Attributes::parse(version, payload, at)?;
    let parsed = build(command, &mut from)?;
    if let Some(left) = from.values.iter().position(Option::is_some) {
        return Err(from.wrong("attribute does not belong to its command", to_u64(left)));
    }
    if version < Version::V2 && matches!(parsed, Command::Utimes { otime: Some(_), .. }) {
        return Err(wrong("time of creation is in a stream of version 1"));
    }
    for (offset, len) in parsed.ranges().into_iter().flatten() {
        if offset
            .checked_add(len)
            .is_none_or(|end| end > FILE_BYTES_MAX)
        {
            return Err(from.wrong("range ends beyond the largest possible file", offset));
        }
    }
    Ok(parsed)
}

/// The attributes of every command, in the order in which Linux writes them, and how each is
/// stored. From this table come the functions that read them (`build`) and write them
/// ([`Command::emit`]).
macro_rules! commands {
    ($($number:ident => $name:ident { $($field:ident: $form:ident $attribute:ident),* $(,)? })*) => {
        fn build<'a>(command: u16, from: &mut Attributes<'a>) -> Result<Command<'a>> {
            Ok(match command {
                $(number::$number => Command::$name {
                    $($field: from.$form(attribute::$attribute)?,)*
                },)*
                number::ENCODED_WRITE => Command::EncodedWrite(from.encoded_write()?),
                _ => return Err(from.wrong(UNKNOWN, command.into())),
            })
        }

        impl Command<'_> {
            fn emit_attributes(&self, to: &mut Payload<'_>) -> Result<()> {
                match *self {
                    $(Command::$name { $($field),* } => {
                        $(to.$form(attribute::$attribute, $field);)*
                    })*
                    Command::EncodedWrite(write) => to.encoded_write(&write)?,
                }
                Ok(())
            }
        }
    };
}

commands! {
    SUBVOL => Subvol { path: bytes PATH, uuid: uuid UUID, ctransid: u64 CTRANSID }
    SNAPSHOT => Snapshot {
        path: bytes PATH,
        uuid: uuid UUID,
        ctransid: u64 CTRANSID,
        clone_uuid: uuid CLONE_UUID,
        clone_ctransid: u64 CLONE_CTRANSID,
    }
    MKFILE => Mkfile { path: bytes PATH, ino: u64 INO }
    MKDIR => Mkdir { path: bytes PATH, ino: u64 INO }
    MKNOD => Mknod { path: bytes PATH, ino: u64 INO, rdev: u64 RDEV, mode: u64 MODE }
    MKFIFO => Mkfifo {
        path: bytes PATH,
        ino: u64 INO,
        rdev: optional_u64 RDEV,
        mode: optional_u64 MODE,
    }
    MKSOCK => Mksock {
        path: bytes PATH,
        ino: u64 INO,
        rdev: optional_u64 RDEV,
        mode: optional_u64 MODE,
    }
    SYMLINK => Symlink { path: bytes PATH, ino: u64 INO, path_link: bytes PATH_LINK }
    RENAME => Rename { path: bytes PATH, path_to: bytes PATH_TO }
    LINK => Link { path: bytes PATH, path_link: bytes PATH_LINK }
    UNLINK => Unlink { path: bytes PATH }
    RMDIR => Rmdir { path: bytes PATH }
    SET_XATTR => SetXattr {
        path: bytes PATH,
        xattr_name: bytes XATTR_NAME,
        xattr_data: bytes XATTR_DATA,
    }
    REMOVE_XATTR => RemoveXattr { path: bytes PATH, xattr_name: bytes XATTR_NAME }
    WRITE => Write { path: bytes PATH, file_offset: u64 FILE_OFFSET, data: bytes DATA }
    CLONE => Clone {
        file_offset: u64 FILE_OFFSET,
        clone_len: u64 CLONE_LEN,
        path: bytes PATH,
        clone_uuid: uuid CLONE_UUID,
        clone_ctransid: u64 CLONE_CTRANSID,
        clone_path: bytes CLONE_PATH,
        clone_offset: u64 CLONE_OFFSET,
    }
    TRUNCATE => Truncate { path: bytes PATH, size: u64 SIZE }
    CHMOD => Chmod { path: bytes PATH, mode: u64 MODE }
    CHOWN => Chown { path: bytes PATH, uid: u64 UID, gid: u64 GID }
    UTIMES => Utimes {
        path: bytes PATH,
        atime: time ATIME,
        mtime: time MTIME,
        ctime: time CTIME,
        otime: optional_time OTIME,
    }
    END => End {}
    UPDATE_EXTENT => UpdateExtent { path: bytes PATH, file_offset: u64 FILE_OFFSET, size: u64 SIZE }
    FALLOCATE => Fallocate {
        path: bytes PATH,
        fallocate_mode: u32 FALLOCATE_MODE,
        file_offset: u64 FILE_OFFSET,
        size: u64 SIZE,
    }
    FILEATTR => Fileattr { path: bytes PATH, fileattr: u64 FILEATTR }
    ENABLE_VERITY => EnableVerity {
        path: bytes PATH,
        verity_algorithm: u8 VERITY_ALGORITHM,
        verity_block_size: u32 VERITY_BLOCK_SIZE,
        verity_salt_data: bytes VERITY_SALT_DATA,
        verity_sig_data: bytes VERITY_SIG_DATA,
    }
}

/// Where a command is written to.
struct Payload<'a> {
    out: &'a mut Vec<u8>,
    version: Version,
    /// Whether all attributes fit so far.
    fits: bool,
}

impl Payload<'_> {
    fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.out.extend(kind.to_le_bytes());
        if kind != attribute::DATA || !self.version.has_long_data() {
            match u16::try_from(value.len()) {
                Ok(len) => self.out.extend(len.to_le_bytes()),
                Err(_) => {
                    self.fits = false;
                    return;
                }
            }
        }
        self.out.extend_from_slice(value);
    }

    fn uuid(&mut self, kind: u16, value: [u8; 16]) {
        self.bytes(kind, &value);
    }

    fn u64(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_le_bytes());
    }

    fn optional_u64(&mut self, kind: u16, value: Option<u64>) {
        if let Some(value) = value {
            self.u64(kind, value);
        }
    }

    fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_le_bytes());
    }

    fn u8(&mut self, kind: u16, value: u8) {
        self.bytes(kind, &[value]);
    }

    fn time(&mut self, kind: u16, time: Time) {
        let mut value = [0; 12];
        value[..8].copy_from_slice(&time.seconds.to_le_bytes());
        value[8..].copy_from_slice(&time.nanoseconds.to_le_bytes());
        self.bytes(kind, &value);
    }

    fn optional_time(&mut self, kind: u16, time: Option<Time>) {
        if let Some(time) = time {
            self.time(kind, time);
        }
    }

    fn encoded_write(&mut self, write: &EncodedWrite<'_>) -> Result<()> {
        let compression = encoded::compression(write.compression);
        let compression =
            compression.ok_or(Error::InvalidInput("send streams have no such compression"))?;
        self.bytes(attribute::PATH, write.path);
        self.u64(attribute::FILE_OFFSET, write.file_offset);
        self.u64(attribute::UNENCODED_FILE_LEN, write.unencoded_file_len);
        self.u64(attribute::UNENCODED_LEN, write.unencoded_len);
        self.u64(attribute::UNENCODED_OFFSET, write.unencoded_offset);
        self.u32(attribute::COMPRESSION, compression);
        if let Some(encryption) = write.encryption {
            self.u32(attribute::ENCRYPTION, encryption);
        }
        self.bytes(attribute::DATA, write.data);
        Ok(())
    }
}

impl Command<'_> {
    /// Appends the command to `out`, with its header, as Linux writes it in a stream of this
    /// version: the attributes in the same order. `out` is unchanged after an error.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if it cannot be expressed: this version has no such command or no
    /// time of creation, an attribute is longer than 65,535 bytes (except data in version 2 and
    /// later), or btrfs does not have the algorithm.
    pub fn emit(&self, version: Version, out: &mut Vec<u8>) -> Result<()> {
        if self.since() > version {
            return Err(Error::InvalidInput(
                "this version of send streams has no such command",
            ));
        }
        if version < Version::V2 && matches!(self, Command::Utimes { otime: Some(_), .. }) {
            return Err(Error::InvalidInput(
                "send streams of version 1 have no time of creation",
            ));
        }
        let start = out.len();
        out.extend([0; COMMAND_HEADER_BYTES]);
        let mut payload = Payload {
            out,
            version,
            fits: true,
        };
        let emitted = self.emit_attributes(&mut payload);
        let fits = payload.fits;
        let bytes = out.len().saturating_sub(start);
        let bytes = bytes.saturating_sub(COMMAND_HEADER_BYTES);
        let result = match (emitted, u32::try_from(bytes)) {
            (Err(error), _) => Err(error),
            (Ok(()), Ok(bytes)) if fits => Ok(bytes),
            _ => Err(Error::InvalidInput(
                "an attribute is too long for a send stream",
            )),
        };
        let bytes = result.inspect_err(|_| out.truncate(start))?;
        let (_, command) = out.split_at_mut(start);
        let (header, payload) = command.split_at_mut(COMMAND_HEADER_BYTES);
        header.copy_from_slice(&command_header(bytes, self.number(), payload));
        Ok(())
    }

    /// The bytes of the command in a stream of this version.
    ///
    /// # Errors
    /// Those of [`Command::emit`].
    pub fn to_bytes(&self, version: Version) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.emit(version, &mut out)?;
        Ok(out)
    }
}
