//! The AWS tools' own files, `~/.aws/credentials` and `~/.aws/config`: what one profile says. Pure; programs and
//! single sign-on that a profile may name are not run.

/// What a profile says of what is needed here.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// `aws_access_key_id`
    pub key_id: Option<String>,
    /// `aws_secret_access_key`
    pub secret: Option<String>,
    /// `aws_session_token`
    pub token: Option<String>,
    /// `region`
    pub region: Option<String>,
    /// `endpoint_url`
    pub endpoint: Option<String>,
    /// `ca_bundle`
    pub ca_bundle: Option<String>,
}

// A secret stands in no message.
impl std::fmt::Debug for Profile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let has_keys = self.key_id.is_some() && self.secret.is_some();
        formatter
            .debug_struct("Profile")
            .field("has_keys", &has_keys)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl Profile {
    /// Reads a profile out of both files' texts; what the credentials file says goes first.
    #[must_use]
    pub fn read(name: &str, credentials: &str, config: &str) -> Self {
        let mut profile = Self::default();
        profile.take(credentials, name);
        // The default profile has no prefix in this file.
        let heading = if name == "default" { name.to_owned() } else { format!("profile {name}") };
        profile.take(config, &heading);
        profile
    }

    fn take(&mut self, text: &str, heading: &str) {
        let mut inside = false;
        for line in text.lines() {
            // Settings below another setting are indented; none of them is needed here.
            if line.starts_with([' ', '\t', '#', ';']) {
                continue;
            }
            if let Some(name) = line.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                inside = name.split_whitespace().eq(heading.split_whitespace());
            } else if let (true, Some((key, value))) = (inside, line.split_once('=')) {
                self.set(key.trim(), value.trim());
            }
        }
    }

    fn set(&mut self, key: &str, value: &str) {
        let place = match key {
            "aws_access_key_id" => &mut self.key_id,
            "aws_secret_access_key" => &mut self.secret,
            "aws_session_token" => &mut self.token,
            "region" => &mut self.region,
            "endpoint_url" => &mut self.endpoint,
            "ca_bundle" => &mut self.ca_bundle,
            _ => return,
        };
        if place.is_none() && !value.is_empty() {
            *place = Some(value.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "# mine\n[default]\naws_access_key_id = AK\naws_secret_access_key=a/b+c=\n\n[ lab ]\naws_access_key_id=LAB\naws_secret_access_key=secret\naws_session_token=tok\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\n[profile lab]\nregion=us-west-2\nendpoint_url = https://minio:9000\ns3 =\n  addressing_style = path\nca_bundle=/etc/ca.pem\n[lab]\nregion=wrong\n";

    #[test]
    fn default_profile_comes_from_both_files() {
        let profile = Profile::read("default", CREDENTIALS, CONFIG);
        assert_eq!(profile.key_id.as_deref(), Some("AK"));
        assert_eq!(profile.secret.as_deref(), Some("a/b+c="));
        assert_eq!((profile.token, profile.region.as_deref()), (None, Some("eu-west-1")));
    }

    #[test]
    fn named_profile_has_its_prefix_in_the_config_file_alone() {
        let profile = Profile::read("lab", CREDENTIALS, CONFIG);
        assert_eq!(profile.token.as_deref(), Some("tok"));
        assert_eq!(profile.region.as_deref(), Some("us-west-2"));
        assert_eq!(profile.endpoint.as_deref(), Some("https://minio:9000"));
        assert_eq!(profile.ca_bundle.as_deref(), Some("/etc/ca.pem"));
    }

    #[test]
    fn profile_that_is_not_there_says_nothing_and_no_secret_is_shown() {
        assert_eq!(Profile::read("other", CREDENTIALS, CONFIG), Profile::default());
        assert!(!format!("{:?}", Profile::read("lab", CREDENTIALS, CONFIG)).contains("secret\""));
    }
}
