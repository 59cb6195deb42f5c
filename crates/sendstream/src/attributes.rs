//! Commands and the attributes that they consist of, in both directions.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Corrupt, Error, Result, Time, to_u64};

use crate::command::{self, Command, since};
use crate::encoded::EncodedWrite;
use crate::raw::{COMMAND_HEADER_BYTES, Version, attribute, command as number, command_header};

/// The largest offset in a file, `MAX_LFS_FILESIZE`.
const FILE_BYTES_MAX: u64 = i64::MAX.cast_unsigned();
/// Nanoseconds of a time are fewer than this.
const NANOSECONDS_MAX: u32 = 1_000_000_000;

/// The attributes of a command by their number, in whatever order they came.
struct Attributes<'a> {
    values: [Option<&'a [u8]>; attribute::COUNT],
    /// The offset of the command's header in the stream, for errors.
    at: u64,
}

impl<'a> Attributes<'a> {
    /// # Errors
    /// An attribute is unknown, not of this version, given twice, or reaches beyond the payload.
    fn parse(version: Version, payload: &'a [u8], at: u64) -> Result<Self> {
        let mut values = [None; attribute::COUNT];
        let mut rest = payload;
        while !rest.is_empty() {
            let parsed = payload.len().saturating_sub(rest.len());
            let here = at.saturating_add(to_u64(COMMAND_HEADER_BYTES.saturating_add(parsed)));
            let wrong = |(what, got)| {
                Error::from(Corrupt {
                    what,
                    at: here,
                    got,
                })
            };
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
        Error::from(Corrupt {
            what,
            at: self.at,
            got,
        })
    }

    fn bytes(&mut self, kind: u16) -> Result<&'a [u8]> {
        let missing = "attribute is missing from its command";
        let value = self.values.get_mut(usize::from(kind));
        let value = value.and_then(Option::take);
        value.ok_or_else(|| self.wrong(missing, kind.into()))
    }

    fn array<const N: usize>(&mut self, kind: u16) -> Result<[u8; N]> {
        let array = self.bytes(kind)?.try_into();
        let what = "attribute has a length that its type does not have";
        array.map_err(|_| self.wrong(what, kind.into()))
    }

    /// `read` of an attribute that can be absent.
    fn optional<T>(
        &mut self,
        kind: u16,
        read: impl FnOnce(&mut Self, u16) -> Result<T>,
    ) -> Result<Option<T>> {
        let value = self.values.get(usize::from(kind));
        let is_there = value.is_some_and(Option::is_some);
        is_there.then(|| read(self, kind)).transpose()
    }

    fn u64(&mut self, kind: u16) -> Result<u64> {
        self.array(kind).map(u64::from_le_bytes)
    }

    fn u32(&mut self, kind: u16) -> Result<u32> {
        self.array(kind).map(u32::from_le_bytes)
    }

    fn time(&mut self, kind: u16) -> Result<Time> {
        let [seconds @ .., a, b, c, d] = self.array::<12>(kind)?;
        let nanoseconds = u32::from_le_bytes([a, b, c, d]);
        if nanoseconds >= NANOSECONDS_MAX {
            let what = "time has a second or more of nanoseconds";
            return Err(self.wrong(what, nanoseconds.into()));
        }
        Ok(Time {
            seconds: i64::from_le_bytes(seconds),
            nanoseconds,
        })
    }

    fn encoded_write(&mut self) -> Result<EncodedWrite<'a>> {
        // Absent means the same as 0.
        let compression = self.optional(attribute::COMPRESSION, Self::u32)?;
        let compression = compression.unwrap_or(0);
        let encryption = self.optional(attribute::ENCRYPTION, Self::u32)?;
        if encryption.is_some_and(|it| it != 0) {
            return Err(Error::Unsupported("encryption in a send stream"));
        }
        let algorithm = command::algorithm(compression);
        let what = "encoded write has a compression that Linux does not have";
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

/// Takes the first attribute of `rest`: its type and its value. An error is what is wrong, and what was found.
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
        return Err(("attribute reaches behind its command", len.into()));
    };
    *rest = after;
    Ok((kind, value))
}

/// Parses a command.
///
/// # Errors
/// The command is not one of this version, an attribute is missing or has no place in it, or its numbers are impossible.
pub(crate) fn parse(
    version: Version,
    command: u16,
    payload: &[u8],
    at: u64,
) -> Result<Command<'_>> {
    let wrong = |what| {
        Error::from(Corrupt {
            what,
            at,
            got: command.into(),
        })
    };
    if command::name(command).is_none() {
        return Err(wrong("send stream has an unknown command"));
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
            return Err(from.wrong("range reaches behind the largest file", offset));
        }
    }
    Ok(parsed)
}

fn build<'a>(command: u16, from: &mut Attributes<'a>) -> Result<Command<'a>> {
    use attribute::{
        ATIME, CLONE_CTRANSID, CLONE_LEN, CLONE_OFFSET, CLONE_PATH, CLONE_UUID, CTIME, CTRANSID,
        DATA, FALLOCATE_MODE, FILE_OFFSET, FILEATTR, GID, INO, MODE, MTIME, OTIME, PATH, PATH_LINK,
        PATH_TO, RDEV, SIZE, UID, UUID, VERITY_ALGORITHM, VERITY_BLOCK_SIZE, VERITY_SALT_DATA,
        VERITY_SIG_DATA, XATTR_DATA, XATTR_NAME,
    };
    if command == number::END {
        return Ok(Command::End);
    }
    if command == number::ENCODED_WRITE {
        return from.encoded_write().map(Command::EncodedWrite);
    }
    let path = from.bytes(PATH)?;
    Ok(match command {
        number::SUBVOL => Command::Subvol {
            path,
            uuid: from.array(UUID)?,
            ctransid: from.u64(CTRANSID)?,
        },
        number::SNAPSHOT => Command::Snapshot {
            path,
            uuid: from.array(UUID)?,
            ctransid: from.u64(CTRANSID)?,
            clone_uuid: from.array(CLONE_UUID)?,
            clone_ctransid: from.u64(CLONE_CTRANSID)?,
        },
        number::MKFILE => Command::Mkfile {
            path,
            ino: from.u64(INO)?,
        },
        number::MKDIR => Command::Mkdir {
            path,
            ino: from.u64(INO)?,
        },
        number::MKNOD => Command::Mknod {
            path,
            ino: from.u64(INO)?,
            rdev: from.u64(RDEV)?,
            mode: from.u64(MODE)?,
        },
        number::MKFIFO => Command::Mkfifo {
            path,
            ino: from.u64(INO)?,
            rdev: from.optional(RDEV, Attributes::u64)?,
            mode: from.optional(MODE, Attributes::u64)?,
        },
        number::MKSOCK => Command::Mksock {
            path,
            ino: from.u64(INO)?,
            rdev: from.optional(RDEV, Attributes::u64)?,
            mode: from.optional(MODE, Attributes::u64)?,
        },
        number::SYMLINK => Command::Symlink {
            path,
            ino: from.u64(INO)?,
            path_link: from.bytes(PATH_LINK)?,
        },
        number::RENAME => Command::Rename {
            path,
            path_to: from.bytes(PATH_TO)?,
        },
        number::LINK => Command::Link {
            path,
            path_link: from.bytes(PATH_LINK)?,
        },
        number::UNLINK => Command::Unlink { path },
        number::RMDIR => Command::Rmdir { path },
        number::SET_XATTR => Command::SetXattr {
            path,
            xattr_name: from.bytes(XATTR_NAME)?,
            xattr_data: from.bytes(XATTR_DATA)?,
        },
        number::REMOVE_XATTR => Command::RemoveXattr {
            path,
            xattr_name: from.bytes(XATTR_NAME)?,
        },
        number::WRITE => Command::Write {
            path,
            file_offset: from.u64(FILE_OFFSET)?,
            data: from.bytes(DATA)?,
        },
        number::CLONE => Command::Clone {
            file_offset: from.u64(FILE_OFFSET)?,
            clone_len: from.u64(CLONE_LEN)?,
            path,
            clone_uuid: from.array(CLONE_UUID)?,
            clone_ctransid: from.u64(CLONE_CTRANSID)?,
            clone_path: from.bytes(CLONE_PATH)?,
            clone_offset: from.u64(CLONE_OFFSET)?,
        },
        number::TRUNCATE => Command::Truncate {
            path,
            size: from.u64(SIZE)?,
        },
        number::CHMOD => Command::Chmod {
            path,
            mode: from.u64(MODE)?,
        },
        number::CHOWN => Command::Chown {
            path,
            uid: from.u64(UID)?,
            gid: from.u64(GID)?,
        },
        number::UTIMES => Command::Utimes {
            path,
            atime: from.time(ATIME)?,
            mtime: from.time(MTIME)?,
            ctime: from.time(CTIME)?,
            otime: from.optional(OTIME, Attributes::time)?,
        },
        number::UPDATE_EXTENT => Command::UpdateExtent {
            path,
            file_offset: from.u64(FILE_OFFSET)?,
            size: from.u64(SIZE)?,
        },
        number::FALLOCATE => Command::Fallocate {
            path,
            fallocate_mode: from.u32(FALLOCATE_MODE)?,
            file_offset: from.u64(FILE_OFFSET)?,
            size: from.u64(SIZE)?,
        },
        number::FILEATTR => Command::Fileattr {
            path,
            fileattr: from.u64(FILEATTR)?,
        },
        // The numbers end here: unknown ones were refused.
        _ => Command::EnableVerity {
            path,
            verity_algorithm: u8::from_le_bytes(from.array(VERITY_ALGORITHM)?),
            verity_block_size: from.u32(VERITY_BLOCK_SIZE)?,
            verity_salt_data: from.bytes(VERITY_SALT_DATA)?,
            verity_sig_data: from.bytes(VERITY_SIG_DATA)?,
        },
    })
}

/// Where a command is written to.
struct Payload<'a> {
    out: &'a mut Vec<u8>,
    version: Version,
    /// Whether all attributes fit so far.
    fits: bool,
}

impl Payload<'_> {
    fn bytes(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.out.extend(kind.to_le_bytes());
        if kind != attribute::DATA || !self.version.has_long_data() {
            match u16::try_from(value.len()) {
                Ok(len) => self.out.extend(len.to_le_bytes()),
                Err(_) => {
                    self.fits = false;
                    return self;
                }
            }
        }
        self.out.extend_from_slice(value);
        self
    }

    fn u64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.bytes(kind, &value.to_le_bytes())
    }

    fn optional_u64(&mut self, kind: u16, value: Option<u64>) -> &mut Self {
        match value {
            Some(value) => self.u64(kind, value),
            None => self,
        }
    }

    fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_le_bytes())
    }

    fn time(&mut self, kind: u16, time: Time) -> &mut Self {
        let mut value = [0; 12];
        value[..8].copy_from_slice(&time.seconds.to_le_bytes());
        value[8..].copy_from_slice(&time.nanoseconds.to_le_bytes());
        self.bytes(kind, &value)
    }
}

impl Command<'_> {
    /// Appends the command to `out`, with its header, as Linux writes it in a stream of this version: the attributes in the
    /// same order. `out` is unchanged after an error.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if it cannot be expressed: this version has no such command or no time of creation, an
    /// attribute is longer than 65,535 bytes (but data may be from version 2 on), or btrfs does not have the algorithm.
    pub fn emit(&self, version: Version, out: &mut Vec<u8>) -> Result<()> {
        if self.since() > version {
            return Err(Error::InvalidInput(
                "this version of send streams has no such command",
            ));
        }
        let start = out.len();
        out.extend([0; COMMAND_HEADER_BYTES]);
        let mut payload = Payload {
            out,
            version,
            fits: true,
        };
        let known = self.emit_attributes(&mut payload);
        let fits = payload.fits;
        let bytes = out.len().saturating_sub(start);
        let bytes = bytes.saturating_sub(COMMAND_HEADER_BYTES);
        let result = match (known, u32::try_from(bytes)) {
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

    fn emit_attributes(&self, to: &mut Payload<'_>) -> Result<()> {
        use attribute::{
            ATIME, CLONE_CTRANSID, CLONE_LEN, CLONE_OFFSET, CLONE_PATH, CLONE_UUID, COMPRESSION,
            CTIME, CTRANSID, DATA, ENCRYPTION, FALLOCATE_MODE, FILE_OFFSET, FILEATTR, GID, INO,
            MODE, MTIME, OTIME, PATH, PATH_LINK, PATH_TO, RDEV, SIZE, UID, UNENCODED_FILE_LEN,
            UNENCODED_LEN, UNENCODED_OFFSET, UUID, VERITY_ALGORITHM, VERITY_BLOCK_SIZE,
            VERITY_SALT_DATA, VERITY_SIG_DATA, XATTR_DATA, XATTR_NAME,
        };
        match *self {
            Command::Subvol {
                path,
                uuid,
                ctransid,
            } => to
                .bytes(PATH, path)
                .bytes(UUID, &uuid)
                .u64(CTRANSID, ctransid),
            Command::Snapshot {
                path,
                uuid,
                ctransid,
                clone_uuid,
                clone_ctransid,
            } => to
                .bytes(PATH, path)
                .bytes(UUID, &uuid)
                .u64(CTRANSID, ctransid)
                .bytes(CLONE_UUID, &clone_uuid)
                .u64(CLONE_CTRANSID, clone_ctransid),
            Command::Mkfile { path, ino } | Command::Mkdir { path, ino } => {
                to.bytes(PATH, path).u64(INO, ino)
            }
            Command::Mknod {
                path,
                ino,
                rdev,
                mode,
            } => to
                .bytes(PATH, path)
                .u64(INO, ino)
                .u64(RDEV, rdev)
                .u64(MODE, mode),
            Command::Mkfifo {
                path,
                ino,
                rdev,
                mode,
            }
            | Command::Mksock {
                path,
                ino,
                rdev,
                mode,
            } => to
                .bytes(PATH, path)
                .u64(INO, ino)
                .optional_u64(RDEV, rdev)
                .optional_u64(MODE, mode),
            Command::Symlink {
                path,
                ino,
                path_link,
            } => to
                .bytes(PATH, path)
                .u64(INO, ino)
                .bytes(PATH_LINK, path_link),
            Command::Rename { path, path_to } => to.bytes(PATH, path).bytes(PATH_TO, path_to),
            Command::Link { path, path_link } => to.bytes(PATH, path).bytes(PATH_LINK, path_link),
            Command::Unlink { path } | Command::Rmdir { path } => to.bytes(PATH, path),
            Command::SetXattr {
                path,
                xattr_name,
                xattr_data,
            } => to
                .bytes(PATH, path)
                .bytes(XATTR_NAME, xattr_name)
                .bytes(XATTR_DATA, xattr_data),
            Command::RemoveXattr { path, xattr_name } => {
                to.bytes(PATH, path).bytes(XATTR_NAME, xattr_name)
            }
            Command::Write {
                path,
                file_offset,
                data,
            } => to
                .bytes(PATH, path)
                .u64(FILE_OFFSET, file_offset)
                .bytes(DATA, data),
            Command::Clone {
                file_offset,
                clone_len,
                path,
                clone_uuid,
                clone_ctransid,
                clone_path,
                clone_offset,
            } => to
                .u64(FILE_OFFSET, file_offset)
                .u64(CLONE_LEN, clone_len)
                .bytes(PATH, path)
                .bytes(CLONE_UUID, &clone_uuid)
                .u64(CLONE_CTRANSID, clone_ctransid)
                .bytes(CLONE_PATH, clone_path)
                .u64(CLONE_OFFSET, clone_offset),
            Command::Truncate { path, size } => to.bytes(PATH, path).u64(SIZE, size),
            Command::Chmod { path, mode } => to.bytes(PATH, path).u64(MODE, mode),
            Command::Chown { path, uid, gid } => to.bytes(PATH, path).u64(UID, uid).u64(GID, gid),
            Command::Utimes {
                path,
                atime,
                mtime,
                ctime,
                otime,
            } => {
                to.bytes(PATH, path)
                    .time(ATIME, atime)
                    .time(MTIME, mtime)
                    .time(CTIME, ctime);
                match otime {
                    None => to,
                    Some(otime) if to.version >= Version::V2 => to.time(OTIME, otime),
                    Some(_) => {
                        return Err(Error::InvalidInput(
                            "send streams of version 1 have no time of creation",
                        ));
                    }
                }
            }
            Command::End => to,
            Command::UpdateExtent {
                path,
                file_offset,
                size,
            } => to
                .bytes(PATH, path)
                .u64(FILE_OFFSET, file_offset)
                .u64(SIZE, size),
            Command::Fallocate {
                path,
                fallocate_mode,
                file_offset,
                size,
            } => to
                .bytes(PATH, path)
                .u32(FALLOCATE_MODE, fallocate_mode)
                .u64(FILE_OFFSET, file_offset)
                .u64(SIZE, size),
            Command::Fileattr { path, fileattr } => to.bytes(PATH, path).u64(FILEATTR, fileattr),
            Command::EncodedWrite(write) => {
                let compression = command::compression(write.compression);
                let compression = compression
                    .ok_or(Error::InvalidInput("send streams have no such compression"))?;
                to.bytes(PATH, write.path)
                    .u64(FILE_OFFSET, write.file_offset)
                    .u64(UNENCODED_FILE_LEN, write.unencoded_file_len)
                    .u64(UNENCODED_LEN, write.unencoded_len)
                    .u64(UNENCODED_OFFSET, write.unencoded_offset)
                    .u32(COMPRESSION, compression);
                if let Some(encryption) = write.encryption {
                    to.u32(ENCRYPTION, encryption);
                }
                to.bytes(DATA, write.data)
            }
            Command::EnableVerity {
                path,
                verity_algorithm,
                verity_block_size,
                verity_salt_data,
                verity_sig_data,
            } => to
                .bytes(PATH, path)
                .bytes(VERITY_ALGORITHM, &[verity_algorithm])
                .u32(VERITY_BLOCK_SIZE, verity_block_size)
                .bytes(VERITY_SALT_DATA, verity_salt_data)
                .bytes(VERITY_SIG_DATA, verity_sig_data),
        };
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
