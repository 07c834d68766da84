//! Dispatches commands.

use moneta_protocol::base64::KeyBuffer;
use moneta_protocol::command::{Command, Keys, ReadVerb, Style, TextStyle};
use moneta_protocol::decoder::Shortcut;
use moneta_protocol::encode;
use moneta_store::request::{KEY_MAX, Retrieve, Write};
use moneta_store::versions::Floor;

use super::sample::Sampled;
use super::{After, Flow, Session, Worker, admin, change, newer, read, rights};
use crate::latency::{Kind, Stopwatch};
use crate::version::VERSION;
use moneta_protocol::Reply;

/// The latency histogram of a command.
#[inline]
pub(super) fn kind_of(command: &Command<'_>) -> Kind {
    match command {
        Command::Get { verb: ReadVerb::Get | ReadVerb::Meta, .. } => Kind::Get,
        Command::Get { .. } => Kind::Touch,
        Command::Set { .. } | Command::PutNewer { .. } => Kind::Set,
        Command::Delete { .. } | Command::Bury { .. } => Kind::Delete,
        Command::Arithmetic { .. } => Kind::Arithmetic,
        _ => Kind::Other,
    }
}

impl Session {
    /// Executes a command in its plainest form; returns the bytes it took.
    #[inline]
    pub(super) fn execute_shortcut(
        &mut self,
        worker: &Worker,
        shortcut: Shortcut<'_>,
        output: &mut Vec<u8>,
        stopwatch: &mut Stopwatch<'_>,
    ) -> usize {
        match shortcut {
            Shortcut::Get { key, consumed } => {
                let style = Style::Text(TextStyle::default());
                let asked = read::Asked { key, request: &Retrieve::BRIEF, verb: ReadVerb::Get, style: &style };
                self.read_one(worker, asked, output);
                if let Some(started) = stopwatch.end() {
                    let keys = Keys::One(key);
                    self.sampled(
                        worker,
                        &Sampled { kind: Kind::Get, started, keys, style: &style, consumed, rest: None },
                        output,
                    );
                }
                consumed
            }
            Shortcut::Set { key, value, flags, exptime, noreply, consumed } => {
                let style = Style::Text(TextStyle { noreply, ..TextStyle::default() });
                let request = Write { flags, exptime, ..Write::default() };
                self.write(worker, change::Asked { key, request: &request, style: &style }, value, output);
                if let Some(started) = stopwatch.end() {
                    let keys = Keys::One(key);
                    self.sampled(
                        worker,
                        &Sampled { kind: Kind::Set, started, keys, style: &style, consumed, rest: None },
                        output,
                    );
                }
                consumed
            }
        }
    }

    /// Executes one command. `input` ends with what it consumed.
    #[inline(never)]
    pub(super) fn execute(
        &mut self,
        worker: &Worker,
        command: &Command<'_>,
        input: &[u8],
        output: &mut Vec<u8>,
        high_water: usize,
    ) -> Flow {
        match *command {
            Command::Get { keys: Keys::One(key), request, verb, style } => {
                self.read_one(worker, read::Asked { key, request: &request, verb, style: &style }, output);
                Flow::Next
            }
            Command::Get { keys, request, verb, style } => {
                let asked = read::Asked { key: &[], request: &request, verb, style: &style };
                self.read_many(worker, keys, asked, input, output, high_water)
            }
            Command::Set { key, value, request, style } => {
                self.write(worker, change::Asked { key, request: &request, style: &style }, value, output);
                Flow::Next
            }
            _ => self.execute_other(worker, command, output),
        }
    }

    /// The rare commands.
    #[inline(never)]
    fn execute_other(&mut self, worker: &Worker, command: &Command<'_>, output: &mut Vec<u8>) -> Flow {
        if let Some(needed) = rights::needed(command, &worker.node)
            && !self.peer.commands.allow(needed.word)
        {
            admin::not_allowed(&needed.style, needed.name, self.out(output));
            return Flow::Next;
        }
        if worker.node.audit.is_some() {
            self.audit(worker, command);
        }
        match *command {
            Command::Delete { key, request, style } => {
                self.delete(worker, change::Asked { key, request: &request, style: &style }, output);
            }
            Command::Arithmetic { key, request, style } => {
                self.arithmetic(worker, change::Asked { key, request: &request, style: &style }, output);
            }
            Command::PutNewer { key, value, item, style } => {
                self.put_newer(worker, newer::Asked { key, value, item: &item, style: &style }, output);
            }
            Command::Bury { key, version, style } => self.bury(worker, key, version, &style, output),
            Command::Floor { version, second, style } => {
                self.floor(worker, Floor { version, second }, &style, output);
            }
            Command::Versions(style) => {
                let told = newer::told(worker);
                encode::reply(&style, &[], Reply::Line(&told), 0, self.out(output));
            }
            Command::Board { arguments } => self.board(worker, arguments, output),
            Command::MetaDebug { key, style } => self.debug(worker, key, &style, output),
            Command::FlushAll { delay, style } => self.flush_all(worker, delay, &style, output),
            Command::Noop(style) => encode::reply(&style, &[], Reply::Noop, 0, self.out(output)),
            Command::Version(style) => encode::reply(&style, &[], Reply::Version(VERSION), 0, self.out(output)),
            Command::Grant(grant) => {
                let granted = format!("{VERSION} {}", grant.word());
                encode::reply(&Style::Text(TextStyle::default()), &[], Reply::Version(&granted), 0, self.out(output));
            }
            Command::Quit(style) => {
                // Binary QUIT is answered, text `quit` is not.
                if matches!(style, Style::Binary(_)) {
                    encode::reply(&style, &[], Reply::Ok, 0, self.out(output));
                }
                return Flow::Close(After::CloseWhenFlushed);
            }
            Command::Sasl { step, mechanism, data, style } => {
                self.sasl(worker, step, mechanism, data, style, output);
                if self.is_barred() {
                    return Flow::Barred;
                }
            }
            _ => return self.administer(worker, command, output),
        }
        Flow::Next
    }

    /// Makes room on the stack for a key that has to be decoded.
    #[inline]
    pub(super) fn key_buffer() -> KeyBuffer {
        [0; KEY_MAX]
    }
}
