//! A broker in KRaft mode, and the tools that come with it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use moneta_certificates::Issued;

use crate::common::{Process, Signal, file, output, steady_port, until};

/// A broker that is its own controller.
pub struct Broker {
    /// `None`: it was killed.
    process: Option<Process>,
    properties: String,
    /// Where clients reach it.
    pub address: String,
    /// Where it asks for TLS and a log-in, if it does.
    pub secured: String,
    folder: PathBuf,
}

/// The one user of a secured broker, for SCRAM and PLAIN, and its secret.
pub const USER: (&str, &str) = ("relay", "between-us");

fn java(memory: &str, arguments: &[&str]) -> Command {
    let jars =
        std::env::var_os("MONETA_TEST_KAFKA").expect("MONETA_TEST_KAFKA: the folder of its jars; make test-kafka");
    let mut command = Command::new("java");
    // Programs that run for seconds: they are to start soon.
    command.args([memory, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]);
    command.arg(Path::new(&jars).join("*")).args(arguments);
    command
}

impl Broker {
    pub fn start(folder: &Path) -> Self {
        Self::with(folder, None)
    }

    /// One that has beside its plain listener one that shows a certificate and asks for a log-in.
    pub fn secured(folder: &Path, shown: &Issued) -> Self {
        Self::with(folder, Some(shown))
    }

    fn with(folder: &Path, shown: Option<&Issued>) -> Self {
        let (client, controller, secured) = (steady_port(), steady_port(), steady_port());
        let (mut listeners, mut more, mut users) = (String::new(), String::new(), Vec::new());
        if shown.is_some() {
            listeners = format!(",SECURED://127.0.0.1:{secured}");
            let (user, secret) = USER;
            more = format!(
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL\n\
                 ssl.keystore.type=PEM\nssl.keystore.location={keys}\n\
                 listener.name.secured.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
                 listener.name.secured.plain.sasl.jaas.config=\
                 {security}.plain.PlainLoginModule required user_{user}=\"{secret}\";\n\
                 listener.name.secured.scram-sha-256.sasl.jaas.config={security}.scram.ScramLoginModule required;\n\
                 listener.name.secured.scram-sha-512.sasl.jaas.config={security}.scram.ScramLoginModule required;\n",
                keys = folder.join("broker.pem").display(),
                security = "org.apache.kafka.common.security",
            );
            for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
                users.extend(["--add-scram".to_owned(), format!("{mechanism}=[name={user},password={secret}]")]);
            }
        }
        let data: PathBuf = folder.join("kafka");
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}{listeners}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{client}{listeners}\ncontroller.listener.names=CONTROLLER\n\
             log.dirs={}\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n\
             group.initial.rebalance.delay.ms=0\nauto.create.topics.enable=false\n{more}",
            data.display()
        );
        let properties = file(folder, "kafka.properties", &text);
        let format = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", &properties];
        output(java("-Xmx128m", &format).args(users));
        let (address, secured) = (format!("127.0.0.1:{client}"), format!("127.0.0.1:{secured}"));
        let mut broker = Self { process: None, properties, address, secured, folder: folder.to_owned() };
        shown.iter().for_each(|shown| broker.shows(shown));
        broker.run();
        broker
    }

    /// The certificate that it shows from its next start on.
    pub fn shows(&self, issued: &Issued) {
        file(&self.folder, "broker.pem", &format!("{}{}", issued.key, issued.certificate));
    }

    /// Starts it where it was.
    pub fn run(&mut self) {
        let process = Process::start(&mut java("-Xmx256m", &["kafka.Kafka", &self.properties]));
        process.until("the broker listens", || std::net::TcpStream::connect(&self.address).is_ok());
        self.process = Some(process);
    }

    pub fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// It answers nothing for a while, and nothing says that it is gone.
    pub fn stop(&self) {
        self.process.as_ref().expect("it runs").stop();
    }

    pub fn go_on(&self) {
        self.process.as_ref().expect("it runs").signal(Signal::SIGCONT);
    }

    /// Runs one of its tools until it succeeds, as it does once the broker has begun. Returns what it prints.
    fn tool(&self, class: &str, arguments: &[&str], input: &str) -> String {
        let mut printed = String::new();
        until(&format!("{class} succeeds"), || {
            let mut command = java("-Xmx128m", &[class, "--bootstrap-server", &self.address]);
            let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().expect("Java runs");
            let mut stdin = child.stdin.take().expect("piped");
            // One that fails at once does not read.
            let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
            drop(stdin);
            let ended = child.wait_with_output().expect("it ends");
            printed = String::from_utf8_lossy(&ended.stdout).into_owned();
            ended.status.success()
        });
        printed
    }

    /// Makes a topic. `more`: what it is told beside.
    pub fn topic(&self, name: &str, partitions: u32, more: &[&str]) -> String {
        let partitions = partitions.to_string();
        let arguments = ["--create", "--if-not-exists", "--topic", name, "--partitions", &partitions];
        self.tool("org.apache.kafka.tools.TopicCommand", &[&arguments, more].concat(), "");
        format!("kafka:{}/{name}", self.address)
    }

    pub fn add_partitions(&self, name: &str, partitions: u32) {
        let partitions = partitions.to_string();
        self.tool(
            "org.apache.kafka.tools.TopicCommand",
            &["--alter", "--topic", name, "--partitions", &partitions],
            "",
        );
    }

    /// Writes messages, as anybody may who is let.
    pub fn write(&self, name: &str, messages: &str) {
        self.tool("org.apache.kafka.tools.ConsoleProducer", &["--topic", name], messages);
    }

    /// The messages that are in a topic that nobody writes now, a line each, as Kafka's own reader prints them.
    pub fn read(&self, name: &str) -> String {
        let arguments = ["--topic", name, "--from-beginning", "--timeout-ms", "8000"];
        self.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", &arguments, "")
    }

    /// Drops all that is in a partition, as retention does.
    pub fn drop_all(&self, folder: &Path, name: &str, partitions: u32) {
        let each = (0..partitions).map(|one| format!(r#"{{"topic":"{name}","partition":{one},"offset":-1}}"#));
        let text = format!(r#"{{"version":1,"partitions":[{}]}}"#, each.collect::<Vec<_>>().join(","));
        let path = file(folder, "dropped.json", &text);
        self.tool("org.apache.kafka.tools.DeleteRecordsCommand", &["--offset-json-file", &path], "");
    }
}
