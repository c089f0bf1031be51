//! The last stages of an image: its pixels or bytes to the device, its tensors to the output region.

use std::time::Duration;

use refmill::failure::{Failure, Stage};
use refmill::recipe::Recipe;
use refmill::report::{ArtifactKind, StageTime};

use super::{KEEP_BYTES, Pipeline, Run, about_tensor, align, metadata, note_alpha, run_stage_artifact};
use crate::colour::Unconverted;
use crate::device::Encoded;
use crate::region::Output;
use crate::repair;
use crate::srgb::SrgbImage;
use crate::tensors::{Derivation, Shape, derived_bytes, safetensors_file};

impl Pipeline {
    pub(super) fn tensors(
        &mut self,
        run: &mut Run<'_>,
        mut image: SrgbImage,
        recipe: &Recipe,
        output: &mut Output<'_>,
    ) -> Result<SrgbImage, Failure> {
        note_alpha(run, image.alpha().is_some(), recipe.background)?;
        image.composite(recipe.background);
        let room = run.job.limits.output_bytes.saturating_sub(output.written());
        let wanted = derived_bytes(Shape::of(&image), &recipe.tensors);
        run.job.limits.check("size of the tensors in bytes", wanted, room).map_err(|f| f.at(Stage::Tensors))?;
        let derived = self.device.derive(&image, &recipe.tensors);
        let derivation = derived.map_err(|(failure, lost)| {
            self.lost_device |= lost;
            failure.at(Stage::Tensors)
        })?;
        self.write(run, Shape::of(&image), recipe, derivation, output)?;
        Ok(image)
    }

    /// Lets the GPU convert pixels that the CPU decoded, and derive their tensors.
    pub(super) fn unconverted(
        &mut self,
        run: &mut Run<'_>,
        image: Unconverted,
        recipe: &Recipe,
        output: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let shape = image.shape();
        run.stage(Stage::Colour, Ok(()))?;
        note_alpha(run, shape.alpha, recipe.background)?;
        let room = run.job.limits.output_bytes.saturating_sub(output.written());
        let wanted = derived_bytes(shape, &recipe.tensors);
        run.job.limits.check("size of the tensors in bytes", wanted, room).map_err(|f| f.at(Stage::Tensors))?;
        let derived = self.device.derive_unconverted(&image, recipe.background, &recipe.tensors);
        let derivation = derived.map_err(|(failure, lost)| {
            self.lost_device |= lost;
            failure.at(Stage::Tensors)
        })?;
        let buffer = image.into_buffer();
        if buffer.capacity() <= KEEP_BYTES {
            self.decoders.recycle(buffer);
        }
        self.write(run, shape, recipe, derivation, output)
    }

    /// Lets the GPU decode the image and derive its tensors; `false` where the CPU has to decode.
    pub(super) fn encoded(
        &mut self,
        run: &mut Run<'_>,
        repaired: &repair::Repaired<'_>,
        recipe: &Recipe,
        output: &mut Output<'_>,
    ) -> Result<bool, Failure> {
        match self.device.derive_encoded(run, repaired, &recipe.tensors) {
            Encoded::Derived(shape, derivation) => {
                run.report.decoder = "nvjpeg".into();
                self.write(run, shape, recipe, derivation, output)?;
                Ok(true)
            }
            Encoded::Cpu(reason) => {
                run.report.decoder = if reason.is_empty() { "cpu".into() } else { format!("cpu: {reason}") };
                Ok(false)
            }
            Encoded::Failed(failure, lost) => {
                self.lost_device |= lost;
                Err(failure.at(Stage::Decode))
            }
        }
    }

    /// Writes the tensors, and into the report what they are.
    fn write(
        &mut self,
        run: &mut Run<'_>,
        shape: Shape,
        recipe: &Recipe,
        derivation: Derivation,
        output: &mut Output<'_>,
    ) -> Result<(), Failure> {
        run.report.uploads = derivation.uploads;
        run.report.stages.push(StageTime { stage: Stage::Upload, micros: derivation.upload_micros });
        run.began += Duration::from_micros(derivation.upload_micros);
        run.report.tensors = derivation.tensors.iter().map(about_tensor).collect();
        let offset = align(output)?;
        let metadata = metadata(run, shape, recipe, &derivation);
        let written = safetensors_file::write(&derivation, &metadata, output).map(|_| output.written() - offset);
        let artifact = run_stage_artifact(run, Stage::Tensors, ArtifactKind::Tensors, offset, written)?;
        run.report.artifacts.push(artifact);
        self.device.recycle(derivation);
        Ok(())
    }
}
