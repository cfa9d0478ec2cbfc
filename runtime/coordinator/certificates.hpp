// Certificates of one job, made here: what RACKRAIL_TLS names (tls.hpp).
#pragma once

#include <filesystem>

namespace rackrail::runtime {

/// Writes ca.pem, cert.pem and key.pem into `folder`, which is made (mode 700): an authority of
/// this job's own, whose key is kept nowhere, and one certificate of it for all processes of the
/// job, with the coordinator's name in it. Keys are of the curve P-256; valid from an hour ago for
/// `days` days. Throws ConfigError where there is one of these files already or the place cannot be
/// written, RuntimeFailure where OpenSSL fails.
void make_certificates(const std::filesystem::path& folder, int days);

}  // namespace rackrail::runtime
