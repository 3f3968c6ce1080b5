# Build: everything, then only what runs, which is the bundle. It is the same for every processor, so that it is built on the
# builder's own, and nothing runs in the stage that has another.
FROM --platform=$BUILDPLATFORM node:24-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY tsconfig.json ./
COPY scripts scripts
COPY src src
COPY config config
RUN npm run build

FROM node:24-slim
LABEL org.opencontainers.image.title=oneflight org.opencontainers.image.licenses=MIT
ENV NODE_ENV=production
WORKDIR /app
COPY package.json LICENSE ./
COPY --from=build /app/dist/bin dist/bin
# Nothing is written at run time: the root file system may be read-only.
USER node
# No configuration is in the image: mount one.
ENV ONEFLIGHT_CONFIG=/etc/oneflight/gateway.yaml
EXPOSE 8080
# The admin listener stays on the container's loopback; the check reads its address from the configuration.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
  CMD ["node", "dist/bin/main.js", "health"]
ENTRYPOINT ["node", "dist/bin/main.js"]
CMD ["start"]
