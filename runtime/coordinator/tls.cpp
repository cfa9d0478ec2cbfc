#include "runtime/coordinator/tls.hpp"

#include <openssl/pem.h>
#include <openssl/x509_vfy.h>

#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "base/file.hpp"
#include "runtime/coordinator/openssl.hpp"

namespace rackrail::runtime {

namespace {

using Store = std::unique_ptr<X509_STORE, OpenSslFree<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, OpenSslFree<X509_STORE_CTX_free>>;

struct CertificateStack {
  STACK_OF(X509) * certificates = sk_X509_new_null();
  CertificateStack() = default;
  CertificateStack(const CertificateStack&) = delete;
  CertificateStack& operator=(const CertificateStack&) = delete;
  ~CertificateStack() { sk_X509_pop_free(certificates, X509_free); }
};

[[noreturn]] void fail(const std::filesystem::path& file, std::string found, std::string expected) {
  throw ConfigError(ErrorContext{.file = file.string(),
                                 .where = kTlsVariable,
                                 .found = std::move(found),
                                 .expected = std::move(expected)});
}

Memory memory_of(const std::string& text) {
  return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Certificate next_certificate(BIO* memory) {
  return Certificate(PEM_read_bio_X509(memory, nullptr, nullptr, nullptr));
}

Certificate certificate_of(const std::filesystem::path& file, const std::string& text) {
  Certificate certificate = next_certificate(memory_of(text).get());
  if (certificate == nullptr) {
    fail(file, "no certificate", "a certificate in PEM");
  }
  return certificate;
}

void require_own_key(const std::filesystem::path& file, const std::string& text, X509* of) {
  require_private_file(file, "a key");
  // An empty passphrase: a key that has one is refused instead of asked for.
  char no_passphrase[] = "";
  const Key key(PEM_read_bio_PrivateKey(memory_of(text).get(), nullptr, nullptr, no_passphrase));
  if (key == nullptr) {
    fail(file, "no private key", "a private key in PEM, without a passphrase");
  }
  if (X509_check_private_key(of, key.get()) != 1) {
    fail(file, "the key of another certificate", "the key of cert.pem beside it");
  }
}

/// Signed by the authority and valid today.
void require_trusted(const std::filesystem::path& file, const std::string& text, X509* authority) {
  const Memory memory = memory_of(text);
  const Certificate own = next_certificate(memory.get());
  CertificateStack between;
  while (Certificate certificate = next_certificate(memory.get())) {
    sk_X509_push(between.certificates, certificate.release());
  }
  const Store store(X509_STORE_new());
  X509_STORE_add_cert(store.get(), authority);
  const StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), own.get(), between.certificates);
  if (X509_verify_cert(context.get()) != 1) {
    fail(file, X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())),
         "a certificate that ca.pem beside it has signed and that is valid today");
  }
}

}  // namespace

TlsCertificates read_tls(const std::filesystem::path& folder) {
  TlsCertificates texts{read_file(folder / "ca.pem"), read_file(folder / "cert.pem"),
                        read_file(folder / "key.pem")};
  const Certificate authority = certificate_of(folder / "ca.pem", texts.authority);
  const Certificate own = certificate_of(folder / "cert.pem", texts.certificate);
  require_own_key(folder / "key.pem", texts.key, own.get());
  require_trusted(folder / "cert.pem", texts.certificate, authority.get());
  return texts;
}

std::optional<TlsCertificates> tls_of_environment() {
  const char* folder = std::getenv(kTlsVariable);
  if (folder == nullptr || *folder == '\0') {
    return std::nullopt;
  }
  return read_tls(folder);
}

void require_private(const HostPort& address, const std::optional<TlsCertificates>& tls) {
  const char* insecure = std::getenv(kInsecureVariable);
  if (tls || is_loopback(address.host) ||
      (insecure != nullptr && insecure == std::string_view("1"))) {
    return;
  }
  throw ConfigError(ErrorContext{
      .file = "<environment>",
      .where = kTlsVariable,
      .found = "no certificates, without which the job's token crosses the network in clear (" +
               to_string(address) + ")",
      .expected = "on all hosts the folder that 'rackrail certificates -o FOLDER' makes; or " +
                  std::string(kInsecureVariable) + "=1 on a network that nobody else reads"});
}

}  // namespace rackrail::runtime
