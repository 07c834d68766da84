//! What a source may say of nodes beside where they are.

/// The state of a node, as a source says it. It is advice: a process trusts what it finds itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// It is about to end, or an operator wants it spared: reads go to other copies first.
    Leaving,
    /// It has not been heard of: it is asked at once whether it is there.
    Away,
}

/// A node of which something is said.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Advised {
    /// Its replica.
    pub replica: String,
    /// Its slot in that.
    pub slot: String,
    /// What is said.
    pub advice: Advice,
}
