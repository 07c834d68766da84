//! Sessions from bytes alone: what a client sends, what it gets, without a socket.

mod admin;
mod binary;
mod curve;
mod limits;
mod login;
mod observe;
mod parking;
mod refused;
mod splits;
mod talk;
mod text;
mod users;
mod versions;
