Gem::Specification.new do |spec|
  spec.name = "windlass"
  spec.version = "0.1.0"
  spec.summary = "Active Job classes whose jobs are performed by Windlass, in Rust"
  spec.authors = ["The authors of Windlass"]
  spec.licenses = ["MIT", "Apache-2.0"]
  spec.files = Dir["lib/**/*", "README.md"]
  spec.required_ruby_version = ">= 3.1"
  spec.add_dependency "activejob", ">= 6.1"
  spec.add_dependency "activerecord", ">= 6.1"
end
