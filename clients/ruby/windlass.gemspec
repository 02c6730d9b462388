# frozen_string_literal: true

Gem::Specification.new do |gem|
  gem.name = "windlass"
  gem.version = "0.1.0"
  gem.summary = "Enqueues background jobs of Windlass, a job queue in Rust, by Active Job"
  gem.authors = ["The authors of Windlass"]
  gem.licenses = %w[MIT Apache-2.0]
  gem.required_ruby_version = ">= 3.1"
  gem.files = Dir["lib/**/*", "README.md"]
  gem.add_dependency "activejob", ">= 6.1"
end
