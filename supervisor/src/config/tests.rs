use std::collections::BTreeSet;

use refmill::failure::Stage;
use refmill::finding::FindingCode;

use super::keys;
use super::*;

fn parsed(text: &str) -> Config {
    Config::parse("refmill.toml", text).unwrap()
}

/// The error of a text, its first line without the excerpt.
fn refused(text: &str) -> String {
    let error = Config::parse("refmill.toml", text).unwrap_err().to_string();
    error.lines().next().unwrap().to_owned()
}

/// The example with what it has commented out.
fn all_of_the_example() -> String {
    let uncommented = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => rest.to_owned() + "\n",
        _ => line.to_owned() + "\n",
    };
    example().lines().map(uncommented).collect()
}

fn paths(value: &toml::Value, prefix: &str, found: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) => table.iter().for_each(|(name, value)| {
            let dot = if prefix.is_empty() { "" } else { "." };
            paths(value, &format!("{prefix}{dot}{name}"), found);
        }),
        toml::Value::Array(items) => items.iter().for_each(|item| paths(item, prefix, found)),
        _ => drop(found.insert(prefix.to_owned())),
    }
}

#[test]
fn nothing_said_is_the_default() {
    assert_eq!(parsed(""), Config::default());
}

#[test]
fn example_says_the_defaults() {
    assert_eq!(parsed(&example()), Config::default());
}

#[test]
fn example_is_sound_with_what_it_has_commented_out() {
    let config = parsed(&all_of_the_example());
    assert_eq!((config.slots.len(), config.tenants.len(), config.policy.findings.len()), (1, 1, 1));
}

#[test]
fn list_of_keys_is_that_of_the_types() {
    let mut real = BTreeSet::new();
    let all = parsed(&all_of_the_example());
    paths(&toml::Value::try_from(all).unwrap(), "", &mut real);
    let named =
        |path: &str| path.replace("findings.*", "findings.icc_corrupt").replace("stages_ms.*", "stages_ms.decode");
    let listed: BTreeSet<String> = keys::all().map(|key| named(key.path)).collect();
    assert_eq!(real, listed);
}

#[test]
fn effective_configuration_reads_back_as_itself() {
    let config = parsed(&all_of_the_example());
    assert_eq!(parsed(&config.to_toml()), config);
    assert_eq!(parsed(&Config::default().to_toml()), Config::default());
}

#[test]
fn unknown_key_is_named_with_its_line_and_the_known_ones() {
    assert_eq!(
        refused("[queue]\npath = \"q\"\nleese_s = 3"),
        "refmill.toml:3:1: `queue.leese_s` is not known; `queue` takes path, durability, lease_s, grace_s, nats"
    );
    assert!(
        refused("quue = 3").starts_with("refmill.toml:1:1: `quue` is not known; the file takes queue, output, slot")
    );
}

#[test]
fn value_out_of_range_is_named_with_its_line_and_the_range() {
    assert_eq!(
        refused("[queue]\nlease_s = 0"),
        "refmill.toml:2:11: `queue.lease_s` is 0, it takes a whole number from 1 to 86400"
    );
    assert_eq!(
        refused("[policy]\nstrict = \"yes\""),
        "refmill.toml:2:10: `policy.strict` is `yes`, it takes true or false"
    );
    assert_eq!(
        refused("[colour]\nintent = \"vivid\""),
        "refmill.toml:2:10: `colour.intent` is `vivid`, it takes perceptual, relative_colorimetric, saturation, \
         absolute_colorimetric"
    );
}

#[test]
fn finding_that_is_none_is_named() {
    let text = "[policy.findings]\nicc_corrupt = \"reject\"\nicc_broken = \"reject\"";
    assert!(refused(text).starts_with("refmill.toml:3:14: `policy.findings.icc_broken` names no finding"));
}

#[test]
fn tenants_of_one_name_are_refused_at_the_second() {
    let text = "[[tenant]]\nname = \"a\"\n\n[[tenant]]\nname = \"a\"";
    assert_eq!(refused(text), "refmill.toml:5:8: `tenant.name` is `a`, as that of an earlier tenant");
    assert!(refused("[[tenant]]\nname = \"A b\"").contains("`tenant.name` is `A b`, it takes 1 to 64"));
    assert!(refused("[tenant]\nname = \"a\"").contains("`tenant` is a table, written [[tenant]]"));
}

#[test]
fn slots_name_devices_once_each() {
    assert!(refused("[[slot]]\ndevice = \"0\"").contains("is none of `auto`, `cpu` and `cuda`: gpu `0` is not a UUID"));
    assert!(refused("[[slot]]\ndevice = \"cpu\"\n[[slot]]\ndevice = \"cpu\"").contains(":4:10: "));
    assert!(refused("[[slot]]\ndevice = \"cpu\"\n[[slot]]\ndevice = \"auto\"").contains("the only slot or none"));
}

#[test]
fn pauses_that_shrink_are_refused() {
    assert_eq!(
        refused("[retry]\nbase_ms = 500000"),
        "refmill.toml:2:11: `retry.most_ms` is 300000, less than `retry.base_ms`, which is 500000"
    );
}

#[test]
fn mark_over_its_hard_limit_is_refused_at_the_one_that_was_said() {
    assert_eq!(
        refused("[watermark]\nhost_bytes = 9000000000"),
        "refmill.toml:2:14: `watermark`: host_bytes is 9000000000, over host_hard_bytes, which is 8589934592"
    );
    assert!(
        refused("[watermark]\ngpu_hard_bytes = 1048576").starts_with("refmill.toml:2:18: `watermark`: gpu_bytes is")
    );
}

#[test]
fn stage_that_is_none_is_named_with_its_line() {
    let refused = refused("[deadlines]\nbeat_ms = 100\n[deadlines.stages_ms]\ndecoding = 5");
    assert!(refused.starts_with("refmill.toml:4:1: unknown variant `decoding`, expected one of `intake`"), "{refused}");
}

#[test]
fn rules_of_a_pool_are_those_that_are_configured() {
    let text = "[watermark]\nsample_ms = 50\n[deadlines]\njob_ms = 7\n[deadlines.stages_ms]\ncolour = 9";
    let rules = parsed(text).rules();
    assert_eq!((rules.watermark.sample_ms, rules.watermark.consecutive), (50, 3));
    assert_eq!((rules.deadlines.job_ms(60_000), rules.deadlines.stage_ms(Stage::Colour)), (7, Some(9)));
}

#[test]
fn tenants_have_the_figures_of_their_class_where_they_say_none() {
    let config =
        parsed("[[tenant]]\nname = \"g\"\nclass = \"guaranteed\"\n[[tenant]]\nname = \"b\"\nmax_concurrency = 9");
    let terms: Vec<_> = config.tenants(true).iter().map(|tenant| (tenant.max_running, tenant.device_bytes)).collect();
    assert_eq!(terms, [(Some(48), Some(12 << 30)), (Some(9), Some(4 << 30))]);
    assert!(config.tenants(false).iter().all(|tenant| tenant.device_bytes.is_none()));
}

#[test]
fn policy_is_that_of_the_contract() {
    let policy = parsed("[policy]\nstrict = true\n[policy.findings]\nicc_corrupt = \"ignore\"").policy.policy();
    assert_eq!(policy, Policy { strict: true, actions: vec![(FindingCode::IccCorrupt, Action::Ignore)] });
}

#[test]
fn changes_are_named_one_by_one_and_say_what_needs_a_restart() {
    let old = parsed("[queue]\nlease_s = 5\n[[tenant]]\nname = \"a\"");
    let new = parsed(
        "[retry]\nbase_ms = 7\n[[tenant]]\nname = \"a\"\nweight = 3\n[policy.findings]\nicc_corrupt = \"ignore\"",
    );
    let told: Vec<String> = changes(&old, &new).iter().map(ToString::to_string).collect();
    let expected = [
        "policy.findings.icc_corrupt is \"ignore\", it was not set",
        "queue.lease_s stays 5: 30 needs a restart",
        "retry.base_ms is 7, it was 1000",
        "tenant.a.weight is 3, it was 1",
    ];
    assert_eq!(told, expected);
    assert_eq!(changes(&new, &new), []);
}

#[test]
fn what_a_server_takes_is_what_the_list_of_keys_says() {
    let old = Config::default();
    let text = all_of_the_example().replace("strict = false", "strict = true");
    let mut new = parsed(&text);
    new.queue = QueueConfig {
        path: "x".into(),
        durability: Durability::Full,
        lease_s: 1,
        grace_s: 1,
        ..QueueConfig::default()
    };
    new.retry = RetryPolicy { max_failures: 9, max_crashes: 9, max_losses: 9, base_ms: 9, most_ms: 9 };
    new.retention = RetentionConfig { done_days: 1, dead_days: 1 };
    let all = changes(&old, &new);
    let left = changes(&old.with_live(&new), &new);
    assert!(all.iter().filter(|change| change.live).count() > 10, "{all:?}");
    assert_eq!(left, all.into_iter().filter(|change| !change.live).collect::<Vec<_>>());
}

#[test]
fn file_that_is_not_there_is_named() {
    let error = Config::read(Path::new("/no/such.toml")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read configuration /no/such.toml: No such file"), "{error}");
}
