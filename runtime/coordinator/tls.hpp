// Certificates for the connection between workers and coordinator, where somebody gives them.
//
// Mutual TLS: coordinator and workers each show a certificate that the job's authority has signed,
// and accept no other. The coordinator's must have the DNS name "rackrail-coordinator" among its
// subject alternative names, whatever the host is called, so that a worker's certificate cannot
// stand for it. Gradients are not protected by this: they go over the transport.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/coordinator/host_port.hpp"

namespace rackrail::runtime {

/// A folder with ca.pem (the authority), cert.pem and key.pem (this process's own).
inline constexpr const char* kTlsVariable = "RACKRAIL_TLS";
/// "1": the job's token may cross a network in clear.
inline constexpr const char* kInsecureVariable = "RACKRAIL_INSECURE";
inline constexpr const char* kCoordinatorTlsName = "rackrail-coordinator";

/// PEM texts.
struct TlsCertificates {
  std::string authority;
  std::string certificate;  ///< and those between it and the authority, if any
  std::string key;
};

/// Throws ConfigError with the file: missing, not PEM, a certificate that is not valid today or
/// that the authority has not signed, a key of another certificate, a key that others than its
/// owner may read.
TlsCertificates read_tls(const std::filesystem::path& folder);
/// The folder that the variable names; none where it is not set or empty.
std::optional<TlsCertificates> tls_of_environment();

/// Throws ConfigError where the token would cross a network in clear: the address is not of this
/// machine alone, there are no certificates, and kInsecureVariable does not allow it.
void require_private(const HostPort& address, const std::optional<TlsCertificates>& tls);

}  // namespace rackrail::runtime
