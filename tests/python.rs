//! What other programs read: the tensors by the `safetensors` package, the report by its published schema.

use crate::support::fixtures::{fixture, repository};
use crate::support::python::Python;
use crate::support::scratch::Scratch;

const OPEN: &str = "
import sys
from safetensors import safe_open
with safe_open(sys.argv[1], framework='np') as file:
    print(file.metadata()['recipe'])
    for name in sorted(file.keys()):
        tensor = file.get_tensor(name)
        print(name, tensor.dtype, tensor.shape, bool(tensor.min() >= -1.001 and tensor.max() <= 1.001))
";

const VALIDATE: &str = "
import json, sys
from jsonschema import Draft202012Validator
schema = json.load(open(sys.argv[1]))
Draft202012Validator.check_schema(schema)
for path in sys.argv[2:]:
    report = json.load(open(path))
    Draft202012Validator(schema).validate(report)
    print(report['outcome'])
";

#[test]
fn python_opens_the_tensors() {
    let Some(python) = Python::with("safetensors.numpy") else { return };
    let scratch = Scratch::new();
    scratch.run([fixture("images/rgba.png").to_str().unwrap(), "--recipe", "sd15"]).with_code(0);
    let output = python.run(OPEN, &[&scratch.path("out/rgba.safetensors")]);
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(lines[0], "sd15");
    assert!(lines[1].starts_with("alpha_mask "), "{said}");
    assert!(lines[2].starts_with("clip_pixels float16 (1, 3, 224, 224) "), "{said}");
    assert_eq!(
        lines[3..],
        ["controlnet_hint float16 (1, 3, 512, 512) True", "vae_pixels float16 (1, 3, 512, 512) True"]
    );
}

#[test]
fn reports_of_every_outcome_follow_the_published_schema() {
    let Some(python) = Python::with("jsonschema") else { return };
    let scratch = Scratch::new();
    let inputs = ["images/p3_orientation6.jpg", "defects/icc_broken.png", "bad/truncated.jpg"].map(fixture);
    scratch.run(inputs.iter().map(|path| path.to_str().unwrap()).chain(["--recipe", "clip"])).with_code(1);
    let schema = repository("docs/report.schema.json");
    let reports = ["p3_orientation6", "icc_broken", "truncated"].map(|n| scratch.path(&format!("out/{n}.report.json")));
    let output = python.run(VALIDATE, &[&schema, &reports[0], &reports[1], &reports[2]]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "ok\nok_with_repair\nreject\n", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn report_with_an_unknown_outcome_breaks_the_published_schema() {
    let Some(python) = Python::with("jsonschema") else { return };
    let scratch = Scratch::new();
    scratch.run([fixture("images/plain.jpg").to_str().unwrap(), "--no-tensors"]).with_code(0);
    let text = String::from_utf8(scratch.read("out/plain.report.json")).unwrap();
    let forged = scratch.write("forged.json", text.replacen("\"ok\"", "\"fine\"", 1));
    let output = python.run(VALIDATE, &[&repository("docs/report.schema.json"), &forged]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("'fine'"), "{output:?}");
}
