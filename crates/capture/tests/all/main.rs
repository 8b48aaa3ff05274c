//! The tests of capture files, in one program.

mod behind;
mod corpus;
mod damage;
mod round_trips;
mod samples;
