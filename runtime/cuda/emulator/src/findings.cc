#include "findings.h"

#include <unistd.h>

#include <cstdio>

#include "config.h"

namespace emulator {

void Findings::add(const char *kind, const std::string &text) { addOnce(kind, text, text); }

void Findings::addOnce(const char *kind, const std::string &key, const std::string &text) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (lines_.size() >= most || !known_.insert(kind + key).second) return;
    lines_.push_back(std::string(kind) + ": " + text);
    report(lines_.back());
}

// Appends the line to the report at once: a Go program ends without running what C registers for the end.
void Findings::report(const std::string &line) const {
    if (config().report.empty()) return;
    FILE *file = fopen(config().report.c_str(), "a");
    if (!file) return;
    fprintf(file, "emulated GPU, process %d: %s\n", static_cast<int>(getpid()), line.c_str());
    fclose(file);
}

std::string Findings::text() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    std::string all;
    for (const std::string &line : lines_) all += line + "\n";
    return all;
}

int Findings::count() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return static_cast<int>(lines_.size());
}

void Findings::clear() {
    const std::lock_guard<std::mutex> guard(mutex_);
    lines_.clear();
    known_.clear();
}

Findings &findings() {
    static Findings f;
    return f;
}

} // namespace emulator
