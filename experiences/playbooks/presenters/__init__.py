"""What pages of playbooks say."""
