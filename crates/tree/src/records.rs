//! The declaration of on-disk records, which btrfs and SquashFS share.

/// Declares on-disk records, unaligned and with the size in bytes that follows the name; a wrong
/// size does not compile. The crate that uses it depends on `zerocopy`.
#[doc(hidden)]
#[macro_export]
macro_rules! records {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident[$bytes:expr] { $($fields:tt)* })*) => {$(
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
            zerocopy::KnownLayout, zerocopy::Unaligned,
        )]
        #[repr(C)]
        $vis struct $name { $($fields)* }
        const _: () = assert!(size_of::<$name>() == $bytes);
    )*};
}
