//! What clients send and read, in both encodings.

use std::collections::BTreeMap;

use moneta_eureka::applications::hash;
use moneta_eureka::{Action, Applications, DataCenter, Encoding, EurekaError, Instance, Lease, Port, Status};
use proptest::collection::btree_map;
use proptest::prelude::*;

#[test]
fn reads_what_a_java_client_registers() {
    let body = br#"{"instance":{"instanceId":"h1:orders:8080","hostName":"h1","app":"ORDERS","ipAddr":"10.0.0.7",
        "status":"STARTING","overriddenStatus":"UNKNOWN","port":{"$":8080,"@enabled":"true"},
        "securePort":{"$":443,"@enabled":"false"},"countryId":1,
        "dataCenterInfo":{"@class":"com.netflix.appinfo.AmazonInfo","name":"Amazon",
            "metadata":{"availability-zone":"us-east-1a","local-ipv4":"10.0.0.7"}},
        "leaseInfo":{"renewalIntervalInSecs":10,"durationInSecs":30,"registrationTimestamp":0,"lastRenewalTimestamp":0,
            "evictionTimestamp":0,"serviceUpTimestamp":0},
        "metadata":{"@class":"java.util.Collections$EmptyMap"},"homePageUrl":"http://h1:8080/","vipAddress":"orders",
        "isCoordinatingDiscoveryServer":"false","lastUpdatedTimestamp":"1700000000000","lastDirtyTimestamp":"1700000000001"}}"#;
    let instance = Encoding::Json.read_instance(body).unwrap();
    assert_eq!(
        (instance.id.as_str(), instance.app.as_str(), instance.host.as_str()),
        ("h1:orders:8080", "ORDERS", "h1")
    );
    assert_eq!(instance.status, Status::Starting);
    assert_eq!(instance.port, Port { number: 8080, enabled: true });
    assert_eq!(instance.secure_port, Port { number: 443, enabled: false });
    assert_eq!(instance.data_center.metadata["availability-zone"], "us-east-1a");
    assert_eq!((instance.lease.renewal_s, instance.lease.duration_s), (10, 30));
    assert!(instance.metadata.is_empty());
    assert_eq!((instance.vip.as_deref(), instance.dirty_ms), (Some("orders"), 1_700_000_000_001));
}

#[test]
fn reads_what_clients_in_other_languages_send() {
    let loose =
        br#"{"instance":{"hostName":"h2","app":"orders","port":"9090","securePort":{"$":"9443","@enabled":true},
        "metadata":{"evcache.port":11211,"blue":true,"none":null},"dataCenterInfo":{"name":"MyOwn"}}}"#;
    let instance = Encoding::Json.read_instance(loose).unwrap();
    assert_eq!((instance.id.as_str(), instance.app.as_str(), instance.status), ("h2", "ORDERS", Status::Up));
    assert_eq!(instance.port, Port { number: 9090, enabled: true });
    assert_eq!(instance.secure_port, Port { number: 9443, enabled: true });
    assert_eq!(instance.metadata.get("evcache.port").map(String::as_str), Some("11211"));
    assert_eq!(instance.metadata.len(), 2);
    assert_eq!(instance.lease, Lease::default());
}

#[test]
fn an_instance_in_amazon_without_a_name_is_known_by_its_machine() {
    let body = br#"{"instance":{"app":"A","hostName":"h","dataCenterInfo":{"name":"Amazon","metadata":{"instance-id":"i-1"}}}}"#;
    assert_eq!(Encoding::Json.read_instance(body).unwrap().id, "i-1");
}

#[test]
fn reads_xml() {
    let body = br#"<?xml version="1.0"?><!-- by hand --><instance><instanceId>h&#49;</instanceId><hostName>h1</hostName><app>orders</app>
        <port enabled="false">80</port><status>OUT_OF_SERVICE</status>
        <dataCenterInfo class="com.netflix.appinfo.AmazonInfo"><name>Amazon</name><metadata><instance-id>i-1</instance-id></metadata></dataCenterInfo>
        <metadata><a__b>x &lt;y&gt;</a__b><_-c><![CDATA[<&>]]></_-c><plain_name/></metadata></instance>"#;
    let instance = Encoding::Xml.read_instance(body).unwrap();
    assert_eq!((instance.id.as_str(), instance.status), ("h1", Status::OutOfService));
    assert_eq!(instance.port, Port { number: 80, enabled: false });
    assert_eq!(instance.data_center.metadata["instance-id"], "i-1");
    let metadata: Vec<(&str, &str)> =
        instance.metadata.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(metadata, [("$c", "<&>"), ("a_b", "x <y>"), ("plain_name", "")]);
}

#[test]
fn writes_what_clients_read() {
    let mut instance = Instance::new("orders", "h1");
    instance.host = "h1".to_owned();
    instance.metadata = BTreeMap::from([("evcache.port".to_owned(), "11211".to_owned())]);
    instance.action = Some(Action::Added);
    let all = Applications::of(7, [instance.clone(), Instance { status: Status::Down, ..instance }]);
    let xml = String::from_utf8(Encoding::Xml.write_applications(&all)).unwrap();
    for part in [
        "<applications><application>",
        "<versions__delta>7</versions__delta>",
        "<apps__hashcode>DOWN_1_UP_1_</apps__hashcode>",
        "<instance><actionType>ADDED</actionType>",
        "<overriddenstatus>UNKNOWN</overriddenstatus>",
        r#"<port enabled="true">7001</port>"#,
        "<metadata><evcache.port>11211</evcache.port></metadata>",
        "<name>ORDERS</name></application>",
    ] {
        assert!(xml.contains(part), "{part} is not in {xml}");
    }
    let json: serde_json::Value = serde_json::from_slice(&Encoding::Json.write_applications(&all)).unwrap();
    assert_eq!(json["applications"]["apps__hashcode"], "DOWN_1_UP_1_");
    assert_eq!(json["applications"]["versions__delta"], "7");
    let first = &json["applications"]["application"][0]["instance"][0];
    assert_eq!(first["port"], serde_json::json!({ "$": 7001, "@enabled": "true" }));
    assert_eq!(first["overriddenStatus"], "UNKNOWN");
    // Netflix's own client reads a place only in this order.
    let place = DataCenter { name: "Amazon".to_owned(), metadata: BTreeMap::from([("a".to_owned(), "b".to_owned())]) };
    let text =
        String::from_utf8(Encoding::Json.write_instance(&Instance { data_center: place, ..Instance::new("a", "i") }))
            .unwrap();
    let expected =
        r#""dataCenterInfo":{"@class":"com.netflix.appinfo.AmazonInfo","name":"Amazon","metadata":{"a":"b"}}"#;
    assert!(text.contains(expected), "{text}");
    assert_eq!(first["dataCenterInfo"]["@class"], "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo");
}

#[test]
fn the_hash_counts_statuses_in_the_order_of_their_words() {
    assert_eq!(hash([Status::Up, Status::Down, Status::Up, Status::Up]), "DOWN_1_UP_3_");
    assert_eq!(
        hash([Status::Unknown, Status::Starting, Status::OutOfService]),
        "OUT_OF_SERVICE_1_STARTING_1_UNKNOWN_1_"
    );
    assert_eq!(hash([]), "");
}

#[test]
fn refuses_what_is_no_instance() {
    let deep = format!("<instance>{}{}</instance>", "<a>".repeat(20), "</a>".repeat(20));
    let wide = format!("<instance><metadata>{}</metadata></instance>", "<a/>".repeat(5000));
    let bomb = "<!DOCTYPE a [<!ENTITY b \"c\">]><instance><app>&b;</app></instance>";
    for body in [deep.as_str(), wide.as_str(), bomb, "", "<instance>", "<instance><app>&nbsp;</app></instance>", "text"]
    {
        assert!(Encoding::Xml.read_instance(body.as_bytes()).is_err(), "{body:.80}");
    }
    let long = format!(r#"{{"instance":{{"app":"{}","hostName":"h"}}}}"#, "a".repeat(9000));
    let many: BTreeMap<String, u32> = (0..300).map(|i| (i.to_string(), i)).collect();
    let many = serde_json::json!({ "instance": { "app": "a", "hostName": "h", "metadata": many } }).to_string();
    for body in
        [long.as_str(), many.as_str(), "", "[]", "7", r#"{"instance":{"hostName":"h"}}"#, r#"{"instance":{"app":"a"}}"#]
    {
        assert!(Encoding::Json.read_instance(body.as_bytes()).is_err(), "{body:.80}");
    }
    let port = br#"{"instance":{"app":"a","hostName":"h","port":{"$":99999}}}"#;
    let error = Encoding::Json.read_instance(port).unwrap_err();
    assert_eq!(error, EurekaError::Field { field: "port", reason: "it is no port".to_owned() });
}

#[test]
fn what_is_asked_for_and_sent() {
    assert_eq!(Encoding::accepted(Some("application/json, application/*+json")), Encoding::Json);
    assert_eq!(Encoding::accepted(Some("*/*")), Encoding::Xml);
    assert_eq!(Encoding::accepted(None), Encoding::Xml);
    assert_eq!(Encoding::sent(Some("application/xml; charset=utf-8")), Encoding::Xml);
    assert_eq!(Encoding::sent(None), Encoding::Json);
}

/// Text that XML can hold, and that is not only white space, which XML readers do not keep.
fn content() -> impl Strategy<Value = String> {
    "[ -~äß€😀]{1,20}".prop_filter("more than white space", |text| !text.trim().is_empty())
}

fn instances() -> impl Strategy<Value = Instance> {
    let names = ("[A-Z0-9_.-]{1,12}", "[ -~]{0,4}[a-z0-9:._-]{1,20}", content(), content());
    let maps = (btree_map("[a-zA-Z_$ ./é-]{1,12}", content(), 0..5), btree_map("[a-z-]{1,12}", content(), 0..5));
    let numbers = (any::<(u16, bool, u16, bool)>(), 1..1_000_000u32, 0..i64::MAX as u64, any::<i64>());
    (names, maps, numbers, proptest::option::of(content()), 0..Status::ALL.len()).prop_map(
        |((app, id, host, ip), (metadata, machine), (ports, renewal_s, at, country), text, status)| Instance {
            host,
            ip,
            status: Status::ALL[status],
            port: Port { number: ports.0, enabled: ports.1 },
            secure_port: Port { number: ports.2, enabled: ports.3 },
            country,
            data_center: DataCenter { name: "Amazon".to_owned(), metadata: machine },
            lease: Lease { renewal_s, registered_ms: at, ..Lease::default() },
            metadata,
            vip: text.clone(),
            asg: text.clone(),
            home_page: text,
            updated_ms: at,
            dirty_ms: at,
            action: Some(Action::Modified),
            ..Instance::new(&app, id.trim())
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(instance in instances()) {
        for encoding in [Encoding::Json, Encoding::Xml] {
            let written = encoding.write_instance(&instance);
            let read = encoding.read_instance(&written);
            prop_assert_eq!(read, Ok(instance.clone()), "{}", String::from_utf8_lossy(&written));
        }
    }

    #[test]
    fn no_body_is_a_panic(body in proptest::collection::vec(any::<u8>(), 0..200), text in "[<>/a&#;x0-9!\\[\\]\"= -]{0,60}") {
        for encoding in [Encoding::Json, Encoding::Xml] {
            let _ = encoding.read_instance(&body);
            let _ = encoding.read_instance(text.as_bytes());
        }
    }
}
