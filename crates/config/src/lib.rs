//! A file of TOML -> a configuration of the live gateway, or all that is wrong with the file.
//!
//! What a side says is about what leaves by it. What a file does not say is as the role has it:
//!
//! | | toward the wide side | toward the narrow side |
//! |---|---|---|
//! | wide interface | reassemble | segment, fragment |
//! | border | coalesce, segment, fragment; MSS both ways | segment, fragment |
//! | router | nothing: its kernel cuts and refuses | nothing |
//!
//! Every mistake is found in one go, with its line, its key and what to do. Where a line is no TOML, what follows
//! it may have been misread: then only the lines before it are judged.
#![forbid(unsafe_code)]

mod check;
mod file;
mod problem;
mod read;
mod settings;
mod spelling;
mod syntax;
mod table;
mod value;

pub use engine::Holding;
pub use problem::{Place, Problem, Problems};
pub use settings::{
    Config, DontFragment, Fail, LimitsConfig, MssConfig, NOBODYS, OwnAddresses, Priority, Raise, Role, SideConfig,
    Stage, WideInterfaceConfig,
};
