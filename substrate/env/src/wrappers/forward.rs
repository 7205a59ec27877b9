//! Methods of `Env` and `File` that a wrapper forwards unchanged.
//!
//! A wrapper implements the methods that it changes and lists the rest, with the field to which they are
//! forwarded: `forward!(inner: list_dir, sync_dir);` inside its `impl Env`.
//!
//! **Invariants**
//! - Only listed methods are forwarded: a new trait method without a default does not compile until each
//!   wrapper implements or lists it.

/// Forwards the listed methods of `Env` or `File` to a field that points to another one.
#[doc(hidden)]
#[macro_export]
macro_rules! forward {
    ($inner:tt: $($method:ident),+ $(,)?) => { $($crate::forward!(@$method $inner);)+ };

    // Methods of `Env`.
    (@anchor $inner:tt) => {
        fn anchor(
            &self,
            directory: &::std::path::Path,
        ) -> ::std::io::Result<::std::sync::Arc<dyn $crate::Env>> {
            $crate::Env::anchor(&*self.$inner, directory)
        }
    };
    (@temporary_file $inner:tt) => {
        fn temporary_file(&self) -> ::std::io::Result<::std::sync::Arc<dyn $crate::File>> {
            $crate::Env::temporary_file(&*self.$inner)
        }
    };
    (@list_dir $inner:tt) => {
        fn list_dir(&self, path: &::std::path::Path) -> ::std::io::Result<::std::vec::Vec<$crate::DirEntry>> {
            $crate::Env::list_dir(&*self.$inner, path)
        }
    };
    (@remove_file $inner:tt) => { $crate::forward!(@on_path remove_file $inner); };
    (@remove_dir $inner:tt) => { $crate::forward!(@on_path remove_dir $inner); };
    (@sync_dir $inner:tt) => { $crate::forward!(@on_path sync_dir $inner); };
    (@on_path $method:ident $inner:tt) => {
        fn $method(&self, path: &::std::path::Path) -> ::std::io::Result<()> {
            $crate::Env::$method(&*self.$inner, path)
        }
    };
    (@lock $inner:tt) => {
        fn lock(
            &self,
            path: &::std::path::Path,
            create: bool,
            exclusive: bool,
        ) -> ::std::io::Result<::std::boxed::Box<dyn $crate::DirLock>> {
            $crate::Env::lock(&*self.$inner, path, create, exclusive)
        }
    };
    (@process $inner:tt) => {
        fn process(&self) -> $crate::Process {
            $crate::Env::process(&*self.$inner)
        }
    };
    (@lock_dir $inner:tt) => {
        fn lock_dir(
            &self,
            directory: &::std::path::Path,
            exclusive: bool,
        ) -> ::std::io::Result<::std::boxed::Box<dyn $crate::DirLock>> {
            $crate::Env::lock_dir(&*self.$inner, directory, exclusive)
        }
    };
    (@owner_state $inner:tt) => {
        fn owner_state(&self, path: &::std::path::Path, process: u32) -> $crate::OwnerState {
            $crate::Env::owner_state(&*self.$inner, path, process)
        }
    };
    (@lock_holder $inner:tt) => {
        fn lock_holder(&self, path: &::std::path::Path) -> ::std::io::Result<$crate::LockHolder> {
            $crate::Env::lock_holder(&*self.$inner, path)
        }
    };
    (@monotonic $inner:tt) => {
        fn monotonic(&self) -> ::std::time::Duration {
            $crate::Env::monotonic(&*self.$inner)
        }
    };
    (@wall_clock $inner:tt) => {
        fn wall_clock(&self) -> ::std::time::Duration {
            $crate::Env::wall_clock(&*self.$inner)
        }
    };
    (@random_u64 $inner:tt) => {
        fn random_u64(&self) -> u64 {
            $crate::Env::random_u64(&*self.$inner)
        }
    };
    (@execution $inner:tt) => {
        fn execution(&self) -> $crate::Execution {
            $crate::Env::execution(&*self.$inner)
        }
    };
    (@spawn $inner:tt) => {
        fn spawn(
            &self,
            name: &str,
            body: ::std::boxed::Box<dyn ::std::ops::FnOnce() + Send>,
        ) -> ::std::io::Result<::std::boxed::Box<dyn $crate::Thread>> {
            $crate::Env::spawn(&*self.$inner, name, body)
        }
    };
    (@sleep $inner:tt) => {
        fn sleep(&self, duration: ::std::time::Duration) {
            $crate::Env::sleep(&*self.$inner, duration);
        }
    };
    (@create_mapped $inner:tt) => {
        fn create_mapped(
            &self,
            path: &::std::path::Path,
            bytes: usize,
        ) -> ::std::io::Result<::std::sync::Arc<dyn $crate::MappedFile>> {
            $crate::Env::create_mapped(&*self.$inner, path, bytes)
        }
    };
    (@boot_id $inner:tt) => {
        fn boot_id(&self) -> ::std::option::Option<u128> {
            $crate::Env::boot_id(&*self.$inner)
        }
    };
    (@free_bytes $inner:tt) => {
        fn free_bytes(&self, path: &::std::path::Path) -> ::std::io::Result<u64> {
            $crate::Env::free_bytes(&*self.$inner, path)
        }
    };

    // Methods of `File`.
    (@read_at $inner:tt) => {
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> ::std::io::Result<()> {
            $crate::File::read_at(&*self.$inner, offset, buffer)
        }
    };
    (@read_batch $inner:tt) => {
        fn read_batch(&self, requests: &mut [$crate::ReadRequest<'_>]) {
            $crate::File::read_batch(&*self.$inner, requests);
        }
    };
    (@start_read $inner:tt) => {
        fn start_read(
            &self,
            offset: u64,
            buffer: $crate::AlignedBuffer,
        ) -> ::std::boxed::Box<dyn $crate::PendingRead> {
            $crate::File::start_read(&*self.$inner, offset, buffer)
        }
    };
    (@sync $inner:tt) => {
        fn sync(&self) -> ::std::io::Result<()> {
            $crate::File::sync(&*self.$inner)
        }
    };
    (@len $inner:tt) => {
        fn len(&self) -> ::std::io::Result<u64> {
            $crate::File::len(&*self.$inner)
        }
    };
    (@punch_hole $inner:tt) => {
        fn punch_hole(&self, offset: u64, length: u64) -> ::std::io::Result<()> {
            $crate::File::punch_hole(&*self.$inner, offset, length)
        }
    };
    (@next_data $inner:tt) => {
        fn next_data(&self, offset: u64) -> u64 {
            $crate::File::next_data(&*self.$inner, offset)
        }
    };
    (@allocated_bytes $inner:tt) => {
        fn allocated_bytes(&self) -> ::std::io::Result<u64> {
            $crate::File::allocated_bytes(&*self.$inner)
        }
    };
}
