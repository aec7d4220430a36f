//! `docs/record.schema.json` and the Rust types are one contract: both must accept and reject the
//! same lines.

use haul_model::{Comparison, Kind, Line, Machine, RatioOf, Record};
use proptest::prelude::*;
use serde_json::{Value, json};

const COMPARISON: [&str; 5] = ["baseline", "ratio", "ratio_low", "ratio_high", "floor"];

fn schema() -> jsonschema::Validator {
    let text = include_str!("../../../docs/record.schema.json");
    let schema: Value = serde_json::from_str(text).expect("the schema is JSON");
    jsonschema::draft202012::meta::validate(&schema).expect("the schema is a JSON Schema");
    jsonschema::validator_for(&schema).expect("the schema compiles")
}

/// Whether a line is accepted. Asserts that schema and types agree.
fn accepted(schema: &jsonschema::Validator, line: &Value) -> bool {
    let by_schema = schema.is_valid(line);
    let by_types = Line::parse(&line.to_string());
    assert_eq!(by_schema, by_types.is_ok(), "schema and types disagree on {line}: {by_types:?}");
    by_schema
}

fn record() -> Record {
    let mut record =
        Record::new("run-1", "copy.size", "haul", "time", "ns").with("size_bytes", 4096);
    record.time = "2026-01-02T03:04:05Z".into();
    record.machine = "m1".into();
    record.samples = vec![51.5, 50.0];
    record.comparison = Some(Comparison {
        baseline: "libc".into(),
        ratio: 0.8,
        ratio_low: 0.79,
        ratio_high: 0.81,
        floor: 0.01,
    });
    record
}

fn machine() -> Machine {
    Machine {
        schema: haul_model::record::MACHINE_SCHEMA.into(),
        id: "m1".into(),
        cpu: "Some CPU".into(),
        isa: vec!["sse2".into()],
        processors: 2,
        caches_bytes: vec![32768],
        memory_bytes: 1 << 33,
        facts: [("kernel".to_string(), "6.1".to_string())].into(),
    }
}

fn json_of(line: impl Into<Line>) -> Value {
    serde_json::from_str(&line.into().to_json()).expect("a line is JSON")
}

#[test]
fn records_and_machines_are_accepted() {
    let schema = schema();
    assert!(accepted(&schema, &json_of(record())));
    assert!(accepted(&schema, &json_of(machine())));
    let mut alone = record();
    alone.comparison = None;
    assert!(accepted(&schema, &json_of(alone)));
}

#[test]
fn every_field_is_required() {
    let schema = schema();
    for line in [json_of(record()), json_of(machine())] {
        for field in line.as_object().expect("an object").keys() {
            let mut without = line.clone();
            without.as_object_mut().expect("an object").remove(field);
            assert!(!accepted(&schema, &without), "{field} may be missing");
        }
    }
}

#[test]
fn every_field_has_one_type() {
    let schema = schema();
    for line in [json_of(record()), json_of(machine())] {
        for (field, value) in line.as_object().expect("an object") {
            for other in
                [json!(null), json!("x"), json!(1.5), json!(true), json!([true]), json!({"a": 1})]
            {
                let free_text =
                    value.is_string() && other.is_string() && field != "schema" && field != "kind";
                let free_number = value.is_f64() && other.is_f64();
                let free_object = field == "parameters" && other.is_object();
                let mut with = line.clone();
                with[field] = other.clone();
                assert_eq!(
                    accepted(&schema, &with),
                    free_text || free_number || free_object,
                    "{field} = {other}"
                );
            }
        }
    }
}

#[test]
fn quantiles_of_must_be_a_positive_count() {
    let schema = schema();
    let mut line = json_of(record());
    assert!(line.get("quantiles_of").is_none());
    assert_eq!(record().samples_count(), 2);
    line["quantiles_of"] = json!(1000);
    assert!(accepted(&schema, &line));
    let Line::Record(read) = Line::parse(&line.to_string()).expect("accepted") else {
        panic!("a record")
    };
    assert_eq!((read.samples_count(), read.samples.len()), (1000, 2));
    assert_round_trip(read.into());
    for other in [json!(null), json!(0), json!(-1), json!(1.5), json!("9"), json!(true), json!([9])]
    {
        line["quantiles_of"] = other;
        assert!(!accepted(&schema, &line), "{line}");
    }
}

#[test]
fn ratio_of_must_be_cost_or_rate() {
    let schema = schema();
    let mut line = json_of(record());
    assert!(line.get("ratio_of").is_none());
    for (word, ratio_of) in [("cost", RatioOf::Cost), ("rate", RatioOf::Rate)] {
        line["ratio_of"] = json!(word);
        assert!(accepted(&schema, &line));
        let Line::Record(read) = Line::parse(&line.to_string()).expect("accepted") else {
            panic!("a record")
        };
        assert_eq!(read.ratio_of, Some(ratio_of));
        assert_round_trip(read.into());
    }
    for other in [json!(null), json!(""), json!("time"), json!(1), json!(true), json!(["cost"])] {
        line["ratio_of"] = other;
        assert!(!accepted(&schema, &line), "{line}");
    }
    let mut alone = json_of(Record { comparison: None, ..record() });
    alone["ratio_of"] = json!("cost");
    assert!(!accepted(&schema, &alone));
}

#[test]
fn incomplete_comparison_is_rejected_and_names_missing_field() {
    let schema = schema();
    let whole = json_of(record());
    for kept in 1..(1 << COMPARISON.len()) - 1 {
        let mut part = whole.clone();
        let object = part.as_object_mut().expect("an object");
        for (bit, field) in COMPARISON.iter().enumerate() {
            if kept & (1 << bit) == 0 {
                object.remove(*field);
            }
        }
        assert!(!accepted(&schema, &part), "{part}");
        let message = Line::parse(&part.to_string()).unwrap_err().to_string();
        let missing =
            COMPARISON.iter().enumerate().find(|(bit, _)| kept & (1 << bit) == 0).expect("one").1;
        assert!(message.contains(&format!("lacks {missing}")), "{message}");
    }
}

#[test]
fn numbers_out_of_range_are_rejected() {
    let schema = schema();
    for field in ["ratio", "ratio_low", "ratio_high", "floor"] {
        let mut line = json_of(record());
        line[field] = json!(-0.1);
        assert!(!accepted(&schema, &line), "{field}");
    }
    for field in ["processors", "memory_bytes"] {
        let mut line = json_of(machine());
        line[field] = json!(-1);
        assert!(!accepted(&schema, &line), "{field}");
    }
    let huge = json_of(record()).to_string().replace("51.5", "1e999");
    assert!(Line::parse(&huge).is_err());
}

#[test]
fn unknown_fields_are_ignored_and_unknown_schemas_rejected() {
    let schema = schema();
    for mut line in [json_of(record()), json_of(machine())] {
        line["later"] = json!({"than": "this"});
        assert!(accepted(&schema, &line));
        line["schema"] = json!("haul.record/2");
        assert!(!accepted(&schema, &line));
    }
    for line in [json!(null), json!([]), json!("haul.record/1"), json!({})] {
        assert!(!accepted(&schema, &line));
    }
}

fn any_comparison() -> impl Strategy<Value = Comparison> {
    (".*", 0.0..1e6_f64, 0.0..1e6_f64, 0.0..1e6_f64, 0.0..10.0_f64).prop_map(
        |(baseline, ratio, ratio_low, ratio_high, floor)| Comparison {
            baseline,
            ratio,
            ratio_low,
            ratio_high,
            floor,
        },
    )
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
        prop::collection::vec(".*".prop_map(Value::from), 0..3).prop_map(Value::from),
    ]
}

prop_compose! {
    fn any_record()(
        texts in prop::collection::vec(".*", 7),
        kind in prop_oneof![Just(Kind::Measured), Just(Kind::Modelled)],
        parameters in prop::collection::btree_map(".*", any_value(), 0..4),
        samples in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL, 0..8),
        quantiles_of in prop::option::of(any::<std::num::NonZeroU64>()),
        comparison in prop::option::of(any_comparison()),
    ) -> Record {
        let mut record = Record::new(&texts[0], &texts[1], &texts[2], &texts[3], &texts[4]);
        record.time.clone_from(&texts[5]);
        record.machine.clone_from(&texts[6]);
        Record { kind, parameters, samples, quantiles_of, comparison, ..record }
    }
}

prop_compose! {
    fn any_machine()(
        texts in prop::collection::vec(".*", 2),
        isa in prop::collection::vec(".*", 0..4),
        processors: usize,
        caches_bytes in prop::collection::vec(any::<u64>(), 0..5),
        memory_bytes: u64,
        facts in prop::collection::btree_map(".*", ".*", 0..4),
    ) -> Machine {
        let id = texts[0].clone();
        let cpu = texts[1].clone();
        Machine { id, cpu, isa, processors, caches_bytes, memory_bytes, facts, ..machine() }
    }
}

/// Numbers come back as written: serde_json is asked for exact parsing of what it prints.
fn assert_round_trip(line: Line) {
    let text = line.to_json();
    assert!(!text.contains('\n'), "one line: {text:?}");
    assert_eq!(Line::parse(&text).expect("what is written is read"), line);
    let value: Value = serde_json::from_str(&text).expect("a line is JSON");
    assert!(schema().is_valid(&value), "{value}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_survive_writing_and_reading(record in any_record()) {
        assert_round_trip(record.into());
    }

    #[test]
    fn machines_survive_writing_and_reading(machine in any_machine()) {
        assert_round_trip(machine.into());
    }

    #[test]
    fn truncated_line_is_rejected(record in any_record(), cut in 0.0..1.0_f64) {
        let text = Line::from(record).to_json();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let end = text.floor_char_boundary((text.len() as f64 * cut) as usize);
        prop_assert!(Line::parse(&text[..end]).is_err());
    }
}
