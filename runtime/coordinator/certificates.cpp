#include "runtime/coordinator/certificates.hpp"

#include <fcntl.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/openssl.hpp"
#include "runtime/coordinator/tls.hpp"

namespace rackrail::runtime {
namespace {

using Extension = std::unique_ptr<X509_EXTENSION, OpenSslFree<X509_EXTENSION_free>>;

constexpr std::size_t kNameDigits = 12;

void require(bool is_done, const char* what) {
  if (!is_done) {
    throw RuntimeFailure(std::string("OpenSSL cannot make ") + what);
  }
}

Key make_key() {
  Key key(EVP_EC_gen("P-256"));
  require(key != nullptr, "a key");
  return key;
}

/// Of this subject and key, signed by the issuer's.
Certificate make_certificate(const std::string& subject, EVP_PKEY* key, const std::string& issuer,
                             EVP_PKEY* issuers_key, int days,
                             std::initializer_list<std::pair<int, std::string>> extensions) {
  constexpr long kHour = 3600;
  constexpr long kDay = 24 * kHour;
  Certificate made(X509_new());
  require(made != nullptr, "a certificate");
  X509* const it = made.get();
  const auto name = [](X509_NAME* of, const std::string& text) {
    return X509_NAME_add_entry_by_txt(of, "CN", MBSTRING_UTF8,
                                      reinterpret_cast<const unsigned char*>(text.data()),
                                      static_cast<int>(text.size()), -1, 0) == 1;
  };
  constexpr int kVersion3 = 2;
  // Serial numbers are positive.
  const std::uint64_t serial = random_key() >> 1U;
  require(X509_set_version(it, kVersion3) == 1 &&
              ASN1_INTEGER_set_uint64(X509_get_serialNumber(it), serial) == 1 &&
              name(X509_get_subject_name(it), subject) && name(X509_get_issuer_name(it), issuer) &&
              // Hosts' clocks differ a little.
              X509_gmtime_adj(X509_getm_notBefore(it), -kHour) != nullptr &&
              X509_gmtime_adj(X509_getm_notAfter(it), days * kDay) != nullptr &&
              X509_set_pubkey(it, key) == 1,
          "a certificate");
  for (const auto& [number, value] : extensions) {
    const Extension extension(X509V3_EXT_conf_nid(nullptr, nullptr, number, value.c_str()));
    require(extension != nullptr && X509_add_ext(it, extension.get(), -1) == 1,
            "a certificate's extension");
  }
  require(X509_sign(it, issuers_key, EVP_sha256()) != 0, "a signature");
  return made;
}

std::string text_of(BIO* memory) {
  char* text = nullptr;
  const long size = BIO_get_mem_data(memory, &text);
  return {text, static_cast<std::size_t>(size)};
}

std::string pem_of(X509* certificate) {
  const Memory memory(BIO_new(BIO_s_mem()));
  require(memory != nullptr && PEM_write_bio_X509(memory.get(), certificate) == 1, "a PEM text");
  return text_of(memory.get());
}

std::string pem_of(EVP_PKEY* key) {
  const Memory memory(BIO_new(BIO_s_mem()));
  require(memory != nullptr && PEM_write_bio_PrivateKey(memory.get(), key, nullptr, nullptr, 0,
                                                        nullptr, nullptr) == 1,
          "a PEM text");
  return text_of(memory.get());
}

[[noreturn]] void refuse(const std::filesystem::path& file, const char* found) {
  throw ConfigError(ErrorContext{.file = file.string(),
                                 .where = "",
                                 .found = found,
                                 .expected = "a place where there is no such file yet"});
}

/// For its owner alone, and never over another file.
void write_new(const std::filesystem::path& file, const std::string& text) {
  const int descriptor =
      open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (descriptor < 0) {
    refuse(file, std::strerror(errno));
  }
  const ssize_t written = write(descriptor, text.data(), text.size());
  const int error = written < 0 ? errno : ENOSPC;
  close(descriptor);
  if (written != static_cast<ssize_t>(text.size())) {
    unlink(file.c_str());
    refuse(file, std::strerror(error));
  }
}

}  // namespace

void make_certificates(const std::filesystem::path& folder, int days) {
  // Another name for each: who does not know it says so, and not that a signature is wrong.
  const std::string authority_name = "rackrail job " + make_job_token().substr(0, kNameDigits);
  const Key authority_key = make_key();
  const Certificate authority = make_certificate(
      authority_name, authority_key.get(), authority_name, authority_key.get(), days,
      {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
       {NID_key_usage, "critical,keyCertSign"}});
  const Key key = make_key();
  const Certificate certificate =
      make_certificate(kCoordinatorTlsName, key.get(), authority_name, authority_key.get(), days,
                       {{NID_basic_constraints, "critical,CA:FALSE"},
                        {NID_ext_key_usage, "serverAuth,clientAuth"},
                        {NID_subject_alt_name, std::string("DNS:") + kCoordinatorTlsName}});
  const std::filesystem::path place = folder.has_filename() ? folder : folder.parent_path();
  const struct {
    std::filesystem::path file;
    std::string text;
  } files[] = {{place / "key.pem", pem_of(key.get())},
               {place / "cert.pem", pem_of(certificate.get())},
               {place / "ca.pem", pem_of(authority.get())}};
  std::error_code ignored;
  for (const auto& each : files) {
    if (std::filesystem::exists(each.file, ignored)) {
      refuse(each.file, "a file");
    }
  }
  std::filesystem::create_directories(place.parent_path(), ignored);
  mkdir(place.c_str(), S_IRWXU);  // or it is there, or writing says why not
  std::vector<std::filesystem::path> written;
  try {
    for (const auto& each : files) {
      write_new(each.file, each.text);
      written.push_back(each.file);
    }
  } catch (const ConfigError&) {
    for (const std::filesystem::path& file : written) {
      std::filesystem::remove(file, ignored);
    }
    throw;
  }
}

}  // namespace rackrail::runtime
